"""Entries of RocketMQ's message trace, as Java's TraceDataEncoder writes them.

An entry is text: fields end with \\x01, the last one with \\x02. Several entries follow each other in the body of a
message of the trace topic. Its keys are the ids and keys of the messages, by which RocketMQ's tools find it.

Java drops empty fields at the end of an entry when it splits it, and then fails for want of a field: a missing text is
"null", as Java writes it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from rmqio.model import Message, Record, SendResult, find_property

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""The topic that RocketMQ's own clients and tools use, where brokers have `traceTopicEnable=true`."""
DEFAULT_REGION: Final = "DefaultRegion"
_MISSING: Final = "null"
_FIELD: Final = "\x01"
_END: Final = "\x02"


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


def read(group: str, request_id: str, record: Record, *, now_ms: int) -> str:
    """Return the entry of a message that is handed to a consumer (`SubBefore`).

    Args:
      group: the consumer group.
      request_id: connects it with the entry of `handled`.
      now_ms: Unix milliseconds.
    """
    region = find_property(record.raw_properties, "MSG_REGION") or _MISSING
    fields = ("SubBefore", str(now_ms), region, group, request_id, record.message_id)
    return _FIELD.join((*fields, str(record.reconsume_times), keys_of(record) or _MISSING)) + _END


def handled(group: str, request_id: str, record: Record, *, now_ms: int, cost_ms: int) -> str:
    """Return the entry of a message that its consumer has taken (`SubAfter`).

    Args:
      cost_ms: how long that took, divided by the number of messages.
    """
    # The 0 is Java's ConsumeReturnType.SUCCESS
    fields = ("SubAfter", request_id, record.message_id, str(cost_ms), "true", keys_of(record) or _MISSING, "0")
    return _FIELD.join((*fields, str(now_ms), group)) + _END  # clients before 5.0 read no group here


def keys_of(record: Record) -> str:
    """Return the keys of a received message, separated by spaces."""
    return find_property(record.raw_properties, "KEYS") or ""


def is_traced(record: Record) -> bool:
    """Return whether the broker that stored a message wants it traced."""
    return find_property(record.raw_properties, "TRACE_ON") != "false"
