"""Batches of messages for one queue, the results of their sends, and messages that send records again."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import count, repeat
from operator import itemgetter
from typing import Final, NamedTuple, overload

from rmqio.errors import LocalError
from rmqio.model import KEYS, SHARDING_KEY, TAGS, Message, MessageQueue, Record, SendResult, SendStatus
from rmqio.wire import accelerator
from rmqio.wire.bodies import BodyError
from rmqio.wire.ids import ConsecutiveIds
from rmqio.wire.properties import encode_properties, user_properties

# Messages that send records again.

_copies_of_usual: Final = accelerator.copies_of_usual
_NO_PROPERTIES: Final = Message(b"-").properties


def copy_of(record: Record) -> Message:
    """The message to send a record again: body, tags, keys, sharding key and user properties.

    Properties that RocketMQ added are dropped. The topic is dropped, too, so that by default a copy does not go back to
    where it came from. A delay is not kept, because it has passed.
    """
    properties = record.properties
    return Message(
        record.body,
        tags=properties.get(TAGS) or None,
        keys=properties.get(KEYS) or (),
        properties=user_properties(properties) or _NO_PROPERTIES,
        sharding_key=properties.get(SHARDING_KEY) or None,
    )


def copies_of(records: list[Record]) -> list[Message]:
    """As `copy_of` for each record, with the C code where it was built."""
    if _copies_of_usual is None:
        return list(map(copy_of, records))
    copies = _copies_of_usual(records, 0)
    while len(copies) < len(records):
        copies.append(copy_of(records[len(copies)]))
        copies += _copies_of_usual(records, len(copies))
    return copies


MAX_BATCH_MESSAGES: Final = 4096
"""A hard limit. The broker adds `(short) batchSize` to the queue's offset: a batch of more than 32767 messages is
acknowledged, then the queue's offsets turn negative and later messages to it, from any producer, are lost (5.5.0, seen
live).
"""
MAX_BATCH_BYTES: Final = 1 << 20
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The broker's maxMessageSize: limits the body in a single send, and all members together in a batch."""

_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_SIZE: Final = struct.Struct(">h")
MEMBER_OVERHEAD: Final = _HEAD.size + _PROPERTIES_SIZE.size
"""Bytes of a member in addition to its body and properties."""

_encode_usual = accelerator.encode_usual
_is_for_topic = accelerator.is_for_topic


_ESTIMATED_MEMBER: Final = 64
"""Estimated bytes in addition to body and properties: the head, and a UNIQ_KEY of 32 characters."""
_ESTIMATED_KEY: Final = 64
"""Estimate for a tag and for each key: measuring them costs more than it saves. The sender splits larger batches."""


def estimated_size(message: Message) -> int:
    """Return the approximate size of a message in a batch. Raises the errors that wrong field types cause."""
    # Fields are read by position, which is faster than by name: this runs for each message.
    size = len(message[0]) + _ESTIMATED_MEMBER
    for name, value in (("topic", message[1]), ("sharding_key", message[5])):
        if value is not None and not isinstance(value, str):  # else the choice of a queue would raise
            raise wrong_type(name, value)
    if message[4]:
        size += len(message.tags or "") + sum(map(len, message.keys)) + len(message.keys) + 16
        for name, value in message.properties.items():
            size += len(name) + len(value) + 2
    elif message[2] or message[3]:
        size += _ESTIMATED_KEY * (1 + len(message[3]))
    return size


def wrong_type(name: str, value: object) -> LocalError:
    """Return the error for a field of a message that is not text."""
    return LocalError(f"{name} of a message is a {type(value).__name__}; it must be a text")


def batchable(message: Message) -> bool:
    """Return whether the message can be batched. In a batch, the broker ignores a delay and delivers at once."""
    return message.delay_level is None and message.deliver_at_ms is None


def is_for_topic(messages: Sequence[Message], topic: str) -> bool:
    """Return whether all messages can be sent to a topic: they name it, or none."""
    if _is_for_topic is not None and _is_for_topic(messages, topic):
        return True
    return {message[1] for message in messages} <= {None, topic}  # by position: this runs per message


class BatchBuilder:
    """One batch for one queue. Its size is known before it is encoded."""

    __slots__ = ("_count", "_max_bytes", "_max_messages", "_parts", "_size")

    def __init__(self, *, max_messages: int = MAX_BATCH_MESSAGES, max_bytes: int = MAX_BATCH_BYTES) -> None:
        if not 1 <= max_messages <= MAX_BATCH_MESSAGES:
            raise LocalError(f"max_messages is {max_messages}; it must be between 1 and {MAX_BATCH_MESSAGES}")
        if not 1 <= max_bytes <= MAX_MESSAGE_BYTES:
            raise LocalError(f"max_bytes is {max_bytes}; it must be between 1 and {MAX_MESSAGE_BYTES}")
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._count = 0

    def add(self, message: Message, message_id: str) -> bool:
        """Encode and add a message. False: no room, so nothing was added; send this batch and begin another.

        A message larger than `max_bytes` is accepted as the only member, if the broker accepts it.

        Raises:
          LocalError: the message fits into no batch (too large, empty body, delayed, illegal property). Nothing was
            added, and the batch is still valid.
        """
        body = message.body
        if self._count >= self._max_messages:
            return False
        if (
            not isinstance(body, bytes)
            or (not body and not message.is_tombstone)
            or message.delay_level is not None
            or message.deliver_at_ms is not None
        ):
            _refuse(message)
        properties = encode_properties(message, message_id=message_id)
        body_size = len(body)
        size = body_size + len(properties) + MEMBER_OVERHEAD
        if self._size + size > self._max_bytes:
            if size > MAX_MESSAGE_BYTES:
                raise LocalError(f"message takes {size} bytes in a batch; the broker's maximum is {MAX_MESSAGE_BYTES}")
            if self._count:
                return False
        self._parts += (
            _HEAD.pack(size, 0, 0, 0, body_size),
            body,
            _PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
        self._size += size
        self._count += 1
        return True

    def add_all(self, messages: Sequence[Message], ids: Sequence[str]) -> int:
        """Add messages with their ids until one does not fit. Returns the number of added messages.

        Raises:
          LocalError: as `add`. The messages before the faulty one were added.
          ValueError: the numbers of ids and messages differ.
        """
        total = len(messages)
        if len(ids) != total:
            raise ValueError(f"{len(ids)} ids for {total} messages")
        added = self._add_usual(messages, ids, 0)
        while added < total and self.add(messages[added], ids[added]):
            added = self._add_usual(messages, ids, added + 1)
        return added

    def _add_usual(self, messages: Sequence[Message], ids: Sequence[str], begin: int) -> int:
        """Add messages from `begin` on with the C code (none without it); return the index of the next one.

        It stops at a message that is unusual, illegal or does not fit: `add` then finds out which.
        """
        if _encode_usual is None:
            return begin
        known = ids.first if isinstance(ids, ConsecutiveIds) else ids
        encoded, number = _encode_usual(
            messages, known, begin, self._max_messages - self._count, self._max_bytes - self._size
        )
        if number:
            self._parts.append(encoded)
            self._size += len(encoded)
            self._count += number
        return begin + number

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Number of bytes that `encode` will return."""
        return self._size

    @property
    def is_empty(self) -> bool:
        return not self._count

    def encode(self) -> bytes:
        """Return the request's body."""
        return b"".join(self._parts)


def _refuse(message: Message) -> None:
    if not isinstance(message.body, bytes):
        raise LocalError(f"message body must be bytes, not {type(message.body).__name__}")
    if not message.body and not message.is_tombstone:
        raise LocalError("message body is empty; the broker fails on an empty body outside of batches")
    raise LocalError("a delayed message must be sent alone; in a batch the broker would deliver it at once")


def send_results_in_python(
    queue: MessageQueue, first_offset: int, ids: Sequence[str], offset_ids: list[str], status: SendStatus
) -> list[SendResult]:
    """Return one result for each id and offset id, with consecutive offsets."""
    # The same as SendResult's constructor, without its keyword handling.
    fields = zip(repeat(queue), count(first_offset), ids, offset_ids, repeat(status), repeat(None))
    return list(map(tuple.__new__, repeat(SendResult), fields))


send_results = accelerator.send_results or send_results_in_python


class BatchMember(NamedTuple):
    """One message of an encoded batch."""

    flag: int
    body: bytes
    properties: bytes


def decode_batch(data: bytes) -> list[BatchMember]:
    """Return the members of an encoded batch. Raises BodyError unless the structure is valid to the last byte."""
    members: list[BatchMember] = []
    position, end = 0, len(data)
    while position < end:
        if end - position < MEMBER_OVERHEAD:
            raise BodyError(f"batch is cut off in member {len(members)}")
        size, _, _, flag, body_size = _HEAD.unpack_from(data, position)
        body_start = position + _HEAD.size
        if not MEMBER_OVERHEAD <= size <= end - position or not 0 <= body_size <= size - MEMBER_OVERHEAD:
            raise BodyError(f"batch member {len(members)} has an illegal size ({size}, body {body_size})")
        body_end = body_start + body_size
        (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, body_end)
        if properties_size != size - body_size - MEMBER_OVERHEAD:
            raise BodyError(f"batch member {len(members)} has an illegal properties size ({properties_size})")
        position += size
        members.append(BatchMember(flag, data[body_start:body_end], data[body_end + 2 : position]))
    return members


# The results of a batch, which are made when somebody looks at them.

_status = itemgetter(SendResult._fields.index("status"))  # by position: runs per message


class BatchResults(Sequence[SendResult]):
    """One result per message of a batch that was stored, in order. Equals a list of them.

    Most senders only want to know that a batch was stored, and making its results takes as long as encoding it.

    Args:
      queue: where it was stored, from `first_offset` on.
      ids: the unique ids of its messages.
      offset_ids: the broker's ids, as its answer has them: separated by commas. There can be fewer, or none.
      is_inner: whether the batch is one record, so that there is one broker's id for all.
    """

    __slots__ = ("_ids", "_is_inner", "_made", "_offset_ids", "_recall_handle", "first_offset", "queue", "status")

    def __init__(
        self,
        queue: MessageQueue,
        first_offset: int,
        ids: Sequence[str],
        offset_ids: str,
        status: SendStatus,
        *,
        is_inner: bool = False,
        recall_handle: str | None = None,
    ) -> None:
        self.queue = queue
        self.first_offset = first_offset
        self.status = status
        self._ids = ids
        self._offset_ids = offset_ids
        self._is_inner = is_inner
        self._recall_handle = recall_handle
        self._made: list[SendResult] | None = None

    def all(self) -> list[SendResult]:
        """The results as a list; always the same one."""
        made = self._made
        if made is None:
            made = self._made = self._make()
        return made

    def _make(self) -> list[SendResult]:
        count = len(self._ids)
        offset_ids = self._offset_ids.split(",") if self._offset_ids else []
        if self._is_inner:
            offset_ids *= count
        if len(offset_ids) < count:  # a broker that returns fewer ids has still stored all messages
            offset_ids += [""] * (count - len(offset_ids))
        results = send_results(self.queue, self.first_offset, self._ids, offset_ids, self.status)
        handle = self._recall_handle
        return results if handle is None else [result._replace(recall_handle=handle) for result in results]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[SendResult]:
        return iter(self.all())

    @overload
    def __getitem__(self, at: int) -> SendResult: ...
    @overload
    def __getitem__(self, at: slice) -> list[SendResult]: ...
    def __getitem__(self, at: int | slice) -> SendResult | list[SendResult]:
        return self.all()[at]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BatchResults):
            other = other.all()
        return self.all() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(self.all())

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self.all(),)


def common_queue(results: Sequence[SendResult]) -> MessageQueue:
    """The queue of the first result."""
    return results.queue if isinstance(results, BatchResults) else results[0].queue


def weak_count(results: Sequence[SendResult]) -> int:
    """How many messages were stored without the acknowledgement that the broker is set up for."""
    if isinstance(results, BatchResults):
        return 0 if results.status is SendStatus.OK else len(results)
    # Each message has its own status: not every producer stores a batch with one request.
    return len(results) - [*map(_status, results)].count(SendStatus.OK)
