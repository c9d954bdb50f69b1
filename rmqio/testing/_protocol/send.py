"""Answers to sends, as a broker gives them (SendMessageProcessor.java, CommitLog.java)."""

from __future__ import annotations

import uuid

from rmqio.errors import LocalError
from rmqio.model import DELAY, TIMER_DELIVER_MS, UNIQ_KEY, WRITE_PERMISSION, MessageQueue, Record, decode_properties
from rmqio.testing._memory_producer import DELAY_LEVELS_S
from rmqio.testing._protocol.settings import BrokerSettings
from rmqio.testing._protocol.stored import raw_host, raw_properties
from rmqio.testing.cluster import InMemoryCluster
from rmqio.topics import validate_topic
from rmqio.wire.batch import MAX_MESSAGE_BYTES, BatchMember, decode_batch
from rmqio.wire.bodies import COMPRESSED, BodyError, decompress
from rmqio.wire.command import Command, ResponseCode
from rmqio.wire.requests import AUTO_CREATE_TOPIC

_MAX_PROPERTIES = 32767
_MAX_QUEUES_OF_NEW_TOPIC = 8
_MESSAGE_ILLEGAL = 13
_ADDED = {"CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def send(cluster: InMemoryCluster, broker: str, port: int, settings: BrokerSettings, request: Command) -> Command:
    """Store one message or a batch, and answer. The field `m` decides which it is, not the request code."""
    ext = request.ext
    queue, refused = _target(cluster, broker, settings, request)
    if refused is not None:
        return refused
    is_batch = ext.get("m") == "true"
    if is_batch:
        return _store_batch(cluster, queue, port, request)
    if not request.body:
        return Command(1, remark="java.lang.NullPointerException")
    if len(request.body) > MAX_MESSAGE_BYTES:
        return _illegal("the message body size maybe exceed limit")
    properties = {name: value for name, value in decode_properties(ext.get("i", "").encode()).items() if value}
    if "INNER_NUM" in properties:
        return _illegal("[INNER_NUM] is not allowed")
    unique = properties.setdefault(UNIQ_KEY, uuid.uuid4().hex.upper())
    raw = raw_properties(properties | _ADDED)
    if len(raw) > _MAX_PROPERTIES:
        return _illegal("the message properties length exceed limit 32767")
    return _store_single(cluster, queue, port, request, unique, raw)


def _target(
    cluster: InMemoryCluster, broker: str, settings: BrokerSettings, request: Command
) -> tuple[MessageQueue, Command | None]:
    ext = request.ext
    queue = MessageQueue(ext["b"], broker, int(ext["e"]))
    try:
        validate_topic(queue.topic)
    except LocalError as error:
        return queue, Command(29, remark=str(error))
    stored = cluster.stored_topic(queue.topic) if queue.topic in cluster.topic_names() else None
    if stored is None or broker not in stored.permission:
        if ext["c"] != AUTO_CREATE_TOPIC or not settings.auto_create_topics:
            return queue, Command(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{queue.topic}] not exist")
        cluster.create_topic(queue.topic, min(int(ext["d"]), _MAX_QUEUES_OF_NEW_TOPIC), (broker,))
        stored = cluster.stored_topic(queue.topic)
    if not stored.permission[broker] & WRITE_PERMISSION:
        return queue, Command(16, remark="the broker[127.0.0.1] sending message is forbidden")
    if queue.queue_id < 0:
        queue = queue._replace(queue_id=0)
    if queue not in stored.queues:
        return queue, Command(29, remark=f"request queueId[{queue.queue_id}] is illegal")
    return queue, None


def _store_single(
    cluster: InMemoryCluster, queue: MessageQueue, port: int, request: Command, unique: str, raw: bytes
) -> Command:
    born_ms, flag, sys_flag = int(request.ext["g"]), int(request.ext["h"]), int(request.ext["f"])
    body, stored_body = _plain(request.body, sys_flag)

    def store(properties: bytes = raw) -> Record:
        return cluster.store(
            queue,
            body,
            properties,
            born_ms=born_ms,
            sys_flag=sys_flag,
            flag=flag,
            stored_body=stored_body,
            store_port=port,
        )

    now = round(cluster.clock.time() * 1000)
    due = _due_ms(decode_properties(raw), now)
    ext = {"transactionId": unique, "queueId": str(queue.queue_id), "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    if due is not None and due > now:
        moved = raw + raw_properties({"REAL_TOPIC": queue.topic, "REAL_QID": str(queue.queue_id)})
        cluster.store_later(due, lambda: store(moved))
        # Both point into the system topic where the message waits.
        system_id = (raw_host(port) + bytes(8)).hex().upper()
        return Command(ResponseCode.SUCCESS, ext | {"msgId": system_id, "queueOffset": "0"})
    record = store()
    return Command(
        ResponseCode.SUCCESS, ext | {"msgId": record.offset_message_id, "queueOffset": str(record.queue_offset)}
    )


def _due_ms(properties: dict[str, str], now: int) -> int | None:
    if DELAY in properties:
        level = min(max(int(properties[DELAY]), 1), len(DELAY_LEVELS_S))
        return now + 1000 * DELAY_LEVELS_S[level - 1]
    if TIMER_DELIVER_MS in properties:
        return int(properties[TIMER_DELIVER_MS])
    return None


def _store_batch(cluster: InMemoryCluster, queue: MessageQueue, port: int, request: Command) -> Command:
    header = decode_properties(request.ext.get("i", "").encode())
    if len(request.body) > MAX_MESSAGE_BYTES:
        return Command(1, remark="java.lang.RuntimeException: message body size exceeded")
    if DELAY in header or queue.topic.startswith("%RETRY%"):
        return _illegal("batch messages can not be delayed or retried")
    try:
        members = decode_batch(request.body)
    except BodyError as error:
        return Command(1, remark=f"java.nio.BufferUnderflowException: {error}")
    sys_flag, born_ms = int(request.ext["f"]), int(request.ext["g"])
    now_ms = round(cluster.clock.time() * 1000)  # one store time for the whole batch
    records = [_store_member(cluster, queue, port, member, born_ms, now_ms, sys_flag) for member in members]
    if len(records) > 32767:
        # The broker adds (short) count to the queue's offset: acknowledged, and never seen again.
        del cluster.stored_queue(queue).records[-len(records) :]
    ext = {
        "queueId": str(queue.queue_id),
        "queueOffset": str(records[0].queue_offset if records else 0),
        "msgId": ",".join(record.offset_message_id for record in records),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    return Command(ResponseCode.SUCCESS, ext)


def _store_member(
    cluster: InMemoryCluster,
    queue: MessageQueue,
    port: int,
    member: BatchMember,
    born_ms: int,
    store_ms: int,
    sys_flag: int,
) -> Record:
    # A member's DELAY is ignored: it is delivered at once.
    body, stored_body = _plain(member.body, sys_flag)
    return cluster.store(
        queue,
        body,
        member.properties,
        born_ms=born_ms,
        store_ms=store_ms,
        sys_flag=sys_flag,
        flag=member.flag,
        stored_body=stored_body,
        store_port=port,
    )


def _plain(body: bytes, sys_flag: int) -> tuple[bytes, bytes | None]:
    """Return the body as a reader sees it, and as stored if that differs."""
    if not sys_flag & COMPRESSED:
        return body, None
    try:
        return decompress(body, sys_flag, limit=16 * 1024 * 1024), body
    except BodyError:
        return body, None  # stored unchecked, as by a broker


def _illegal(remark: str) -> Command:
    return Command(_MESSAGE_ILLEGAL, remark=remark)
