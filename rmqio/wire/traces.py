"""Entries of RocketMQ's message trace, as Java's TraceDataEncoder writes them.

An entry is text: fields end with \\x01, the last one with \\x02. Several entries follow each other in the body of a
message of the trace topic. Its keys are the ids and keys of the messages, by which RocketMQ's tools find it.

Java drops empty fields at the end of an entry when it splits it, and then fails for want of a field: a missing text is
"null", as Java writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from rmqio.model import KEYS, UNIQ_KEY, Message, Record, SendResult, find_property

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""The topic that RocketMQ's own clients and tools use, where brokers have `traceTopicEnable=true`."""
DEFAULT_REGION: Final = "DefaultRegion"
_MISSING: Final = "null"
_FIELD: Final = "\x01"
_END: Final = "\x02"
_OFF: Final = b"TRACE_ON\x01false"


class MessageType(IntEnum):
    """Java's MessageType, by its ordinal."""

    NORMAL = 0
    DELAYED = 3


def type_of(message: Message) -> MessageType:
    """Return how Java's trace calls a message: delayed, or normal (also with a sharding key)."""
    is_delayed = message.delay_level is not None or message.deliver_at_ms is not None
    return MessageType.DELAYED if is_delayed else MessageType.NORMAL


def store_host(offset_message_id: str) -> str:
    """Return the broker's `address:port` in an offset message id; empty if there is none in it."""
    try:
        raw = bytes.fromhex(offset_message_id)
    except ValueError:
        return ""
    host, port = raw[:-12], int.from_bytes(raw[-12:-8], "big")
    if len(host) == 4:
        return f"{'.'.join(map(str, host))}:{port}"
    return f"[{host.hex(':', 2)}]:{port}" if len(host) == 16 else ""


def sent(group: str, topic: str, message: Message, result: SendResult, *, started_ms: int, latency_ms: int) -> str:
    """Return the entry of a stored message (`Pub`).

    Args:
      group: the producer group.
      topic: the message's topic.
      started_ms: when its send began, in Unix milliseconds.
      latency_ms: how long it took.
    """
    fields = (
        "Pub",
        str(started_ms),
        DEFAULT_REGION,
        group,
        topic,
        result.message_id,
        message.tags or _MISSING,
        " ".join(message.keys) or _MISSING,
        store_host(result.offset_message_id) or result.queue.broker,
        str(len(message.body or b"")),
        str(latency_ms),
        str(int(type_of(message))),
        result.offset_message_id or _MISSING,
        "true" if result.status.value == 0 else "false",
    )
    return _FIELD.join(fields) + _END


class Traced(NamedTuple):
    """The fields of a received message that its entries have."""

    message_id: str
    keys: str
    retries: int


def traced(records: Sequence[Record]) -> list[Traced]:
    """Return what entries say of received messages, without those that their broker wants not traced."""
    found = []
    for record in records:
        raw = record.raw_properties
        if _OFF in raw and find_property(raw, "TRACE_ON") == "false":
            continue
        message_id = find_property(raw, UNIQ_KEY) or record.offset_message_id
        found.append(Traced(message_id, find_property(raw, KEYS) or "", record.reconsume_times))
    return found


def region_of(record: Record) -> str:
    """Return the region of the broker that stored a message. Members of a batch have none."""
    return find_property(record.raw_properties, "MSG_REGION") or _MISSING


def read(group: str, request_id: str, messages: Sequence[Traced], *, region: str, now_ms: int) -> list[str]:
    """Return the entries of messages that are handed to a consumer (`SubBefore`).

    Args:
      group: the consumer group.
      request_id: connects them with the entries of `handled`.
      now_ms: Unix milliseconds.
    """
    head = _FIELD.join(("SubBefore", str(now_ms), region, group, request_id, ""))
    return [
        f"{head}{message_id}{_FIELD}{retries}{_FIELD}{keys or _MISSING}{_END}" for message_id, keys, retries in messages
    ]


def handled(group: str, request_id: str, messages: Sequence[Traced], *, now_ms: int, cost_ms: int) -> list[str]:
    """Return the entries of messages that their consumer has taken (`SubAfter`).

    Args:
      cost_ms: how long that took, divided by the number of messages.
    """
    head = f"SubAfter{_FIELD}{request_id}{_FIELD}"
    cost = f"{_FIELD}{cost_ms}{_FIELD}true{_FIELD}"
    # The 0 is Java's ConsumeReturnType.SUCCESS; clients before 5.0 read no group behind the time
    tail = f"{_FIELD}0{_FIELD}{now_ms}{_FIELD}{group}{_END}"
    return [f"{head}{message_id}{cost}{keys or _MISSING}{tail}" for message_id, keys, _ in messages]
