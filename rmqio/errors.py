"""Errors of rmqio: one base class, with flags on each class that tell a retry loop what to do.

The subclasses of `BrokerError` are the registry of response codes (source: ResponseCode.java and
RemotingSysResponseCode.java of RocketMQ 5.5.0). A retry loop reads `retriable` and `stale_route`; it never lists codes.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final


def quoted(text: str) -> str:
    """Returns the text in quotes for a message: on one line, with backslashes as they were written."""
    return repr(text).replace(r"\\", "\\")


def counted(number: int, noun: str) -> str:
    """Returns `1 row`, `1,234 rows`, or `2 addresses`."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def reason(error: Exception) -> object:
    """Returns why a file cannot be read or written, for a message that names the file."""
    return getattr(error, "strerror", None) or error


class RmqioError(Exception):
    """Base of every error that rmqio raises on purpose; any other exception that escapes is a bug."""

    retriable: ClassVar[bool] = False
    """Whether the same request can succeed later, or at another broker."""
    stale_route: ClassVar[bool] = False
    """Whether the cached route of the topic is out of date, and must be looked up again first."""


class LocalError(RmqioError, ValueError):
    """Misuse on this side: a bad argument, an illegal name, a closed client. Nothing was sent."""


class SetupError(LocalError):
    """The connection settings are unusable: credentials, certificates, addresses. Nothing was sent.

    No message is at fault, so no message may be dropped because of it.
    """


class QueueNotReadable(LocalError):
    """The route of a topic has the queue, but not for readers: because of the topic's permission or readQueueNums."""


class QueueGone(QueueNotReadable):
    """The route of a topic does not have the queue: it was removed, or has never been there."""


class WireError(RmqioError):
    """The peer's bytes violate the protocol. The stream can no longer be trusted, so the connection is closed."""


class CorruptMessage(WireError):
    """A stored message that cannot be decoded: truncated, bad CRC, unknown compression, too large when decompressed.

    `topic`, `broker`, `queue_id` and `queue_offset` are its coordinates if known (else None or -1), `raw` its bytes as
    received, and `next_offset` the first offset after it if known (else None).
    """

    def __init__(
        self,
        reason: str,
        *,
        topic: str | None = None,
        broker: str | None = None,
        queue_id: int = -1,
        queue_offset: int = -1,
        raw: bytes = b"",
        next_offset: int | None = None,
    ) -> None:
        self.reason = reason
        self.topic, self.broker, self.queue_id, self.queue_offset = topic, broker, queue_id, queue_offset
        self.raw = raw
        self.next_offset = next_offset
        where = f"topic {topic!r}, broker {broker!r}, queue {queue_id}, offset {queue_offset}"
        super().__init__(f"stored message cannot be decoded: {reason} ({where})")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_corrupt_message, (
            self.reason,
            self.topic,
            self.broker,
            self.queue_id,
            self.queue_offset,
            self.raw,
            self.next_offset,
        )


def _rebuild_corrupt_message(
    reason: str,
    topic: str | None,
    broker: str | None,
    queue_id: int,
    queue_offset: int,
    raw: bytes,
    next_offset: int | None,
) -> CorruptMessage:
    return CorruptMessage(
        reason,
        topic=topic,
        broker=broker,
        queue_id=queue_id,
        queue_offset=queue_offset,
        raw=raw,
        next_offset=next_offset,
    )


class TransportError(RmqioError):
    """The connection could not be established, or it broke. Requests in flight have an unknown outcome."""

    retriable = True
    stale_route = True


class RequestTimeout(TransportError):
    """No answer arrived in time. The outcome is unknown: a repeated send can store the message twice."""


class BrokerSilent(TransportError):
    """The broker has not answered recently. It is skipped for a while, so that it does not delay other brokers' queues.

    Nothing was sent.
    """


class OffsetOutOfRange(RmqioError):
    """The wanted offset is not in the queue: retention deleted it, or the topic was truncated or recreated.

    `wanted` is the requested offset; the broker holds the range [`minimum`, `maximum`).
    """

    def __init__(self, queue: object, wanted: int, minimum: int, maximum: int) -> None:
        self.queue, self.wanted, self.minimum, self.maximum = queue, wanted, minimum, maximum
        lost = counted(minimum - wanted, "message")
        were, they = ("was", "it was") if minimum - wanted == 1 else ("were", "they were")
        super().__init__(
            f"{queue}: offset {wanted} is not available; the broker holds [{minimum}, {maximum}). "
            + (
                f"{lost} {were} deleted by retention before {they} read. "
                if wanted < minimum
                else "The topic was deleted and recreated, or the broker lost its tail. "
            )
            + "Set on_offset_out_of_range='earliest' or 'latest' to continue (the gap is counted), or start elsewhere."
        )

    def __reduce__(self) -> tuple[object, ...]:
        return OffsetOutOfRange, (self.queue, self.wanted, self.minimum, self.maximum)


class CommitIgnored(RmqioError):
    """The broker reported success for a commit, but ignored it: an operator's reset of the group's offset is pending.

    `QueueClient.committed_offset` returns the reset offset. The reset stays pending, and commits are ignored, until a
    pull is sent under the group.
    """

    def __init__(self, group: str, queue: object, offset: int) -> None:
        self.group, self.queue, self.offset = group, queue, offset
        super().__init__(
            f"{queue}: the broker ignored the commit of offset {offset} for group {group!r}, because an operator's "
            "reset of that offset is pending; it stays pending until a member of the group pulls"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return CommitIgnored, (self.group, self.queue, self.offset)


class OffsetsLost(RmqioError):
    """The broker skipped offsets that no filter explains: their file is gone, or a compacted topic dropped them."""

    def __init__(self, queue: object, position: int, skipped: int) -> None:
        self.queue, self.position, self.skipped = queue, position, skipped
        super().__init__(
            f"{queue}: {counted(skipped, 'offset')} after {position} {'is' if skipped == 1 else 'are'} missing in the "
            "broker's answer: removed by retention during the read, or by compaction. Set "
            "on_offset_out_of_range='earliest' or 'latest' to "
            "continue after them (they are counted in the metric offsets_skipped)"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return OffsetsLost, (self.queue, self.position, self.skipped)


class GroupOffsetReset(RmqioError):
    """An operator has reset the group's offset of a queue while it was being read, and `on_group_reset` is "honour"."""

    def __init__(self, group: str, queue: object, offset: int | None) -> None:
        self.group, self.queue, self.offset = group, queue, offset
        super().__init__(
            f"{queue}: the offset of group {group!r} was reset to {offset} while it was being read. Start the pipeline "
            "again, without its checkpoint, with StartFrom.group_offsets() to continue there; or set "
            "on_group_reset='refuse' to keep reading at the current position"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return GroupOffsetReset, (self.group, self.queue, self.offset)


class SerdeError(RmqioError):
    """A body cannot be deserialized, or an element cannot be serialized. It goes to the error output."""


class BrokerError(RmqioError):
    """The broker or name server answered with a code other than success.

    `code` is the response code, `remark` the server's text (which can be a Java exception), `request` the request.
    """

    name: ClassVar[str] = "UNKNOWN"
    number: ClassVar[int] = -1

    def __init__(self, code: int, remark: str | None, request: str) -> None:
        self.code, self.remark, self.request = code, remark, request
        text = f"{request}: code {code} {self.name}"
        super().__init__(f"{text}: {remark}" if remark else text)

    def __reduce__(self) -> tuple[object, ...]:
        return broker_error, (self.code, self.remark, self.request)


_REGISTRY: dict[int, type[BrokerError]] = {}


def _define(
    number: int, name: str, *, title: str = "", retriable: bool = False, stale_route: bool = False
) -> type[BrokerError]:
    title = title or "".join(part.capitalize() for part in name.split("_"))
    namespace = {
        "name": name,
        "number": number,
        "retriable": retriable,
        "stale_route": stale_route,
        "__doc__": f"Response code {number} {name}.",
        "__module__": __name__,
    }
    cls = type(title, (BrokerError,), namespace)
    _REGISTRY[number] = cls
    return cls


# SYSTEM_ERROR is retried although a send may have been stored: at least once, never lost.
BrokerSystemError = _define(1, "SYSTEM_ERROR", title="BrokerSystemError", retriable=True)
SystemBusy = _define(2, "SYSTEM_BUSY", retriable=True)
RequestCodeNotSupported = _define(3, "REQUEST_CODE_NOT_SUPPORTED")
TransactionFailed = _define(4, "TRANSACTION_FAILED")
FlushDiskTimeout = _define(10, "FLUSH_DISK_TIMEOUT")
SlaveNotAvailable = _define(11, "SLAVE_NOT_AVAILABLE")
FlushSlaveTimeout = _define(12, "FLUSH_SLAVE_TIMEOUT")
MessageIllegal = _define(13, "MESSAGE_ILLEGAL")
ServiceNotAvailable = _define(14, "SERVICE_NOT_AVAILABLE", retriable=True, stale_route=True)
VersionNotSupported = _define(15, "VERSION_NOT_SUPPORTED")
# Java's producer retries NO_PERMISSION at another broker. We do not: a refused credential is refused everywhere.
NoPermission = _define(16, "NO_PERMISSION")
TopicNotExist = _define(17, "TOPIC_NOT_EXIST", stale_route=True)
TopicExistAlready = _define(18, "TOPIC_EXIST_ALREADY")
PullNotFound = _define(19, "PULL_NOT_FOUND")
PullRetryImmediately = _define(20, "PULL_RETRY_IMMEDIATELY", retriable=True)
PullOffsetMoved = _define(21, "PULL_OFFSET_MOVED")
QueryNotFound = _define(22, "QUERY_NOT_FOUND")
SubscriptionParseFailed = _define(23, "SUBSCRIPTION_PARSE_FAILED")
SubscriptionNotExist = _define(24, "SUBSCRIPTION_NOT_EXIST")
SubscriptionNotLatest = _define(25, "SUBSCRIPTION_NOT_LATEST")
SubscriptionGroupNotExist = _define(26, "SUBSCRIPTION_GROUP_NOT_EXIST")
FilterDataNotExist = _define(27, "FILTER_DATA_NOT_EXIST")
FilterDataNotLatest = _define(28, "FILTER_DATA_NOT_LATEST")
InvalidParameter = _define(29, "INVALID_PARAMETER")


class QueueNotExist(BrokerError):
    """Code 29 for a send to a queue that the broker does not have, or no longer has: an operator removed it."""

    name = InvalidParameter.name
    number = InvalidParameter.number
    stale_route = True


NotInCurrentUnit = _define(205, "NOT_IN_CURRENT_UNIT", retriable=True)
FlowControl = _define(215, "FLOW_CONTROL", retriable=True)
NotLeaderForQueue = _define(501, "NOT_LEADER_FOR_QUEUE", retriable=True, stale_route=True)
IllegalOperation = _define(604, "ILLEGAL_OPERATION")
GoAway = _define(1500, "GO_AWAY", retriable=True, stale_route=True)


_ILLEGAL_QUEUE: Final = re.compile(r"request queueId\[-?\d+\] is illegal")
"""The remark of AbstractSendMessageProcessor, which also uses the code for other parameters."""


def broker_error(code: int, remark: str | None, request: str) -> BrokerError:
    """The error for a response code: the registered class, or `BrokerError` itself for an unknown code."""
    if code == QueueNotExist.number and remark and _ILLEGAL_QUEUE.search(remark):
        return QueueNotExist(code, remark, request)
    return _REGISTRY.get(code, BrokerError)(code, remark, request)
