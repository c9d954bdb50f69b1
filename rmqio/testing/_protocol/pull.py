"""Answers to pulls, as a broker gives them (PullMessageProcessor.java, DefaultMessageStore.getMessage)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqio.model import MessageQueue, Record
from rmqio.testing._protocol.settings import BrokerSettings
from rmqio.testing._protocol.stored import encode_stored
from rmqio.testing._storage import StoredQueue
from rmqio.testing.cluster import InMemoryCluster
from rmqio.topics import java_string_hash
from rmqio.wire.command import Command, PullFlag, ResponseCode

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
