"""Answers of a name server and a broker, including their traps. Pure except for the cluster: commands in and out.

The behavior pinned here was seen on a 5.5.0 broker; tests/contract runs the same tests against a real one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqio.errors import LocalError
from rmqio.model import (
    DELAY,
    READ_PERMISSION,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WRITE_PERMISSION,
    MessageQueue,
    Record,
    decode_properties,
)
from rmqio.testing.cluster import InMemoryCluster, StoredQueue, encode_stored, raw_host, raw_properties
from rmqio.testing.memory import DELAY_LEVELS_S
from rmqio.topics import java_string_hash, validate_topic
from rmqio.wire.batch import MAX_MESSAGE_BYTES, BatchMember, decode_batch
from rmqio.wire.bodies import COMPRESSED, BodyError, decompress
from rmqio.wire.command import Command, PullFlag, RequestCode, ResponseCode
from rmqio.wire.requests import AUTO_CREATE_TOPIC, RESET_PENDING_REMARK

# Settings that an operator would put into a broker's configuration file.


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of fake brokers; the defaults are those of `LocalRocketMQ`.

    Args:
      auto_create_topics: whether a send to a missing topic creates it (`autoCreateTopicEnable`).
      sql_filters: whether to accept SQL92 filters (`enablePropertyFilter`); `InMemoryCluster.define_sql` defines them.
    """

    auto_create_topics: bool = False
    sql_filters: bool = True


# Answers to pulls, as a broker gives them (PullMessageProcessor.java, DefaultMessageStore.getMessage).

MAX_MESSAGES = 32
MAX_BYTES = 256 * 1024
_SCANNED_AT_MOST = 800


def pull(cluster: InMemoryCluster, broker: str, settings: BrokerSettings, request: Command) -> Command:
    """Return the current answer; the server decides whether to hold it (`should_hold`)."""
    ext = request.ext
    topic, group, offset = ext["topic"], ext["consumerGroup"], int(ext["queueOffset"])
    queue = MessageQueue(topic, broker, int(ext["queueId"]))
    cluster.groups.add(group)  # before anything is checked
    if topic not in cluster.topic_names():
        return Command(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist, apply first please!")
    stored = cluster.stored_topic(topic).queues.get(queue)
    if stored is None:
        return Command(29, remark=f"queueId[{queue.queue_id}] is illegal, topic:[{topic}]")
    if not int(ext["sysFlag"]) & PullFlag.SUBSCRIPTION:
        return Command(24, remark="the consumer's subscription not exist")
    if ext.get("expressionType", "TAG") != "TAG" and not settings.sql_filters:
        return Command(1, remark="The broker does not support consumer to filter message by SQL92")
    if int(ext["sysFlag"]) & PullFlag.COMMIT_OFFSET:
        cluster.commit(group, queue, int(ext["commitOffset"]))
    reset = cluster.take_reset(group, queue)
    if reset is not None:
        return _moved(stored, reset, "OFFSET_RESET")
    return _get(stored, offset, min(max(int(ext["maxMsgNums"]), 1), MAX_MESSAGES), _matcher(cluster, ext))


def should_hold(request: Command, answer: Command) -> float:
    """Return for how many milliseconds to hold the answer while waiting for a message; 0: not at all."""
    if answer.code != ResponseCode.PULL_NOT_FOUND or not int(request.ext["sysFlag"]) & PullFlag.SUSPEND:
        return 0
    return float(request.ext.get("suspendTimeoutMillis", "0"))


def _get(stored: StoredQueue, offset: int, count: int, matches: Callable[[Record], bool]) -> Command:
    minimum, end = stored.minimum, stored.end
    if end == 0:
        if offset != 0:
            return _moved(stored, 0, "NO_MESSAGE_IN_QUEUE")
        return _nothing(stored, offset, "NO_MESSAGE_IN_QUEUE")
    if offset < minimum:
        return _moved(stored, minimum, "OFFSET_TOO_SMALL")
    if offset == end:
        return _nothing(stored, offset, "OFFSET_OVERFLOW_ONE")
    if offset > end:
        return _moved(stored, end, "OFFSET_OVERFLOW_BADLY")
    if offset in stored.removed:
        while offset in stored.removed:
            offset += 1
        return _answer(ResponseCode.PULL_RETRY_IMMEDIATELY, stored, offset, "MESSAGE_WAS_REMOVING")
    found: list[bytes] = []
    size = 0
    position = offset
    for record in stored.slice(offset, _SCANNED_AT_MOST):
        if record.queue_offset in stored.removed or len(found) >= count:
            break
        if matches(record):
            data = encode_stored(record, stored.stored_bodies.get(record.queue_offset))
            if found and size + len(data) > MAX_BYTES:
                break
            found.append(_broken(data) if record.queue_offset in stored.corrupt else data)
            size += len(data)
        position = record.queue_offset + 1
    if not found:
        return _answer(ResponseCode.PULL_RETRY_IMMEDIATELY, stored, position, "NO_MATCHED_MESSAGE")
    return _answer(ResponseCode.SUCCESS, stored, position, "FOUND", b"".join(found))


def _matcher(cluster: InMemoryCluster, ext: Mapping[str, str]) -> Callable[[Record], bool]:
    expression = ext.get("subscription", "*").strip()
    if expression in ("*", ""):
        return lambda record: True
    if ext.get("expressionType", "TAG") != "TAG":
        # The trap: a filter that does not compile lets everything pass.
        return cluster.predicates.get(ext["subscription"], lambda record: True)
    # As the broker does: by the 32-bit hash alone, so that "Aa" matches "BB".
    codes = {java_string_hash(tag.strip()) for tag in expression.split("||") if tag.strip()}
    return lambda record: java_string_hash(record.tags or "") in codes


def _broken(data: bytes) -> bytes:
    # The CRC of the body: bytes 8 to 11.
    return data[:8] + bytes(byte ^ 0x55 for byte in data[8:12]) + data[12:]


def _moved(stored: StoredQueue, offset: int, remark: str) -> Command:
    return _answer(ResponseCode.PULL_OFFSET_MOVED, stored, offset, remark)


def _nothing(stored: StoredQueue, offset: int, remark: str) -> Command:
    return _answer(ResponseCode.PULL_NOT_FOUND, stored, offset, remark)


def _answer(code: int, stored: StoredQueue, next_offset: int, remark: str, body: bytes = b"") -> Command:
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(stored.minimum),
        "maxOffset": str(stored.end),
    }
    return Command(code, ext, body, remark=remark)


# Answers to sends, as a broker gives them (SendMessageProcessor.java, CommitLog.java).

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


CLUSTER = "DefaultCluster"
SYSTEM_TOPICS = (
    "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_wheel_timer", CLUSTER,
)  # fmt: skip


class NameServerHandlers:
    """Answers of the name server; `addresses` returns the brokers' current `host:port`."""

    def __init__(
        self, cluster: InMemoryCluster, addresses: Callable[[], Mapping[str, str]], settings: BrokerSettings
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._addresses = addresses

    def __call__(self, request: Command) -> Command:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._route(request.ext["topic"])
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {name: self._broker(name) for name in self._addresses()}
            answer = _json({"brokerAddrTable": table, "clusterAddrTable": {CLUSTER: sorted(table)}})
            # Seen on 5.5.0: broker ids are bare integer keys here, which is invalid JSON, whatever the client's
            # version.
            answer.body = answer.body.replace(b'"0":', b"0:")
            return answer
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            topics = {*self._cluster.topic_names(), *SYSTEM_TOPICS, *self._addresses()}
            if self._settings.auto_create_topics:
                topics.add(AUTO_CREATE_TOPIC)
            return _json({"topicList": sorted(topics)})
        if request.code == RequestCode.DELETE_TOPIC_IN_NAMESRV:
            return Command(ResponseCode.SUCCESS)
        return not_supported(request)

    def _broker(self, name: str) -> dict[str, object]:
        return {"cluster": CLUSTER, "brokerName": name, "brokerAddrs": {"0": self._addresses()[name]}}

    def _route(self, topic: str) -> Command:
        with self._cluster.changed:
            if topic == AUTO_CREATE_TOPIC and self._settings.auto_create_topics:  # the template exists on every broker
                return self._route_answer(dict.fromkeys(self._addresses(), (8, 7)))
            if topic not in self._cluster.topic_names():
                return Command(
                    ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic route info in name server for the topic: {topic}"
                )
            stored = self._cluster.stored_topic(topic)
            return self._route_answer(
                {
                    name: (sum(queue.broker == name for queue in stored.queues), permission)
                    for name, permission in stored.permission.items()
                }
            )

    def _route_answer(self, brokers: Mapping[str, tuple[int, int]]) -> Command:
        queues = [
            {"brokerName": name, "readQueueNums": count, "writeQueueNums": count, "perm": perm, "topicSysFlag": 0}
            for name, (count, perm) in brokers.items()
        ]
        known = [self._broker(name) for name in brokers if name in self._addresses()]
        return _json({"queueDatas": queues, "brokerDatas": known, "filterServerTable": {}})


class BrokerHandlers:
    """Answers of one broker, named `name`, listening on `port`."""

    def __init__(self, cluster: InMemoryCluster, name: str, port: int, settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._name = name
        self._table: dict[int, Callable[[Command], Command]] = {
            RequestCode.PULL_MESSAGE: lambda request: pull(cluster, name, settings, request),
            RequestCode.SEND_MESSAGE_V2: lambda request: send(cluster, name, port, settings, request),
            RequestCode.SEND_BATCH_MESSAGE: lambda request: send(cluster, name, port, settings, request),
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit_offset,
            RequestCode.GET_MAX_OFFSET: lambda request: self._offset(request, lambda stored: stored.end),
            RequestCode.GET_MIN_OFFSET: lambda request: self._offset(request, lambda stored: stored.minimum),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_filter,
            RequestCode.UNREGISTER_CLIENT: lambda request: Command(ResponseCode.SUCCESS),
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset_offset,
        }

    def __call__(self, request: Command) -> Command:
        handler = self._table.get(request.code)
        if handler is None:
            return not_supported(request)
        with self._cluster.changed:
            try:
                return handler(request)
            except (KeyError, ValueError) as error:
                # On a real broker, a missing field is a NullPointerException, a malformed one a NumberFormatException.
                return Command(1, remark=f"java.lang.NullPointerException: {error!r}")

    def _queue(self, request: Command) -> MessageQueue:
        return MessageQueue(request.ext["topic"], self._name, int(request.ext["queueId"]))

    def _find(self, queue: MessageQueue) -> StoredQueue | None:
        if queue.topic not in self._cluster.topic_names():
            return None
        return self._cluster.stored_topic(queue.topic).queues.get(queue)

    def _offset(self, request: Command, pick: Callable[[StoredQueue], int]) -> Command:
        stored = self._find(self._queue(request))
        # The trap: an unknown topic or queue is answered with success and 0.
        return _offset(0 if stored is None else pick(stored))

    def _search_offset(self, request: Command) -> Command:
        queue, timestamp_ms = self._queue(request), int(request.ext["timestamp"])
        stored = self._find(queue)
        if stored is None:
            return _offset(0)
        if request.ext.get("boundaryType", "LOWER").upper() == "UPPER":
            upper = self._cluster.offset_for_time(queue, timestamp_ms + 1) - 1
            return _offset(min(max(upper, stored.minimum), stored.end))
        return _offset(self._cluster.offset_for_time(queue, timestamp_ms))

    def _query_offset(self, request: Command) -> Command:
        queue = self._queue(request)
        offset = self._cluster.committed(request.ext["consumerGroup"], queue)
        if offset is not None and offset >= 0:
            return _offset(offset)
        stored = self._find(queue)
        # The trap: by default, a group never seen starts at 0 while message 0 still exists.
        if request.ext.get("setZeroIfNotFound") != "false" and (stored is None or stored.minimum <= 0):
            return _offset(0)
        return Command(ResponseCode.QUERY_NOT_FOUND, remark="Not found, maybe this group consumer boot first")

    def _commit_offset(self, request: Command) -> Command:
        queue, group = self._queue(request), request.ext["consumerGroup"]
        offset = int(request.ext["commitOffset"])
        if queue.topic not in self._cluster.topic_names():
            return Command(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {queue.topic} not exist!")
        if group not in self._cluster.groups:
            return Command(26, remark=f"Group {group} not exist!")
        done = self._cluster.commit(group, queue, offset)
        return Command(ResponseCode.SUCCESS, remark=None if done else RESET_PENDING_REMARK)

    def _heartbeat(self, request: Command) -> Command:
        for consumer in json.loads(request.body).get("consumerDataSet") or ():
            self._cluster.groups.add(consumer["groupName"])
        return Command(ResponseCode.SUCCESS, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})

    def _check_filter(self, request: Command) -> Command:
        subscription = json.loads(request.body)["subscriptionData"]
        expression = subscription["subString"]
        if subscription.get("expressionType", "TAG") == "TAG" or expression in self._cluster.predicates:
            return Command(ResponseCode.SUCCESS)
        return Command(23, remark=f"{expression!r} does not compile: define its meaning with define_sql()")

    def _create_topic(self, request: Command) -> Command:
        ext = request.ext
        attributes = ext.get("attributes") or ""
        if any(not item.startswith(("+", "-")) for item in attributes.split(",") if item):
            return Command(1, remark="java.lang.RuntimeException: Operating symbol missing in attributes")
        permission = int(ext["perm"])
        queues = max(int(ext["readQueueNums"]), int(ext["writeQueueNums"]))
        if permission & (READ_PERMISSION | WRITE_PERMISSION):
            self._cluster.create_topic(ext["topic"], queues, (self._name,), permission=permission)
        return Command(ResponseCode.SUCCESS)

    def _delete_topic(self, request: Command) -> Command:
        self._cluster.delete_topic(request.ext["topic"])
        return Command(ResponseCode.SUCCESS)

    def _reset_offset(self, request: Command) -> Command:
        self._cluster.reset_group(request.ext["group"], self._queue(request), int(request.ext["offset"]))
        return Command(ResponseCode.SUCCESS)


def not_supported(request: Command) -> Command:
    """Return the answer to an unknown request code."""
    return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {request.code} not supported")


def _offset(value: int) -> Command:
    return Command(ResponseCode.SUCCESS, {"offset": str(value)})


def _json(value: object) -> Command:
    return Command(ResponseCode.SUCCESS, body=json.dumps(value).encode())
