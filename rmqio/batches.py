"""Batches: several values that travel through a pipeline as one element, which costs as much as one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any, Self, TypeVar

from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, Record

T = TypeVar("T")

PlaceIds = Callable[[MessageQueue, Sequence[int], str], list[str]]

_NO_PROPERTIES = Message(b"-").properties


class Batch(list[T]):
    """A list of values that were read from one queue, and the place of each. `ReadFromRocketMQ(batches=True)` emits it.

    A `WriteToRocketMQ(batches=True)` derives the id of each message from its place, and a dead letter names the place.
    Do not change the list: `with_values` creates another one.

    Attributes:
      queue: the queue; None: the places are unknown.
      offsets: the queue offset of each value, in order.
      steps: labels of the `MapRecords` that the values come from. Two of them that map the same record give two
        messages, whose ids must differ.
    """

    __slots__ = ("offsets", "queue", "steps")

    def __init__(
        self,
        values: Iterable[T] = (),
        queue: MessageQueue | None = None,
        offsets: Sequence[int] = (),
        steps: str = "",
    ) -> None:
        super().__init__(values)
        if queue is not None and len(offsets) != len(self):
            raise LocalError(f"a batch of {queue} has {len(self)} values, but {len(offsets)} offsets")
        self.queue = queue
        self.offsets = offsets
        self.steps = steps

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self.queue, self.offsets, self.steps)

    def with_values(self, values: Iterable[Any], positions: Sequence[int] | None = None, *, step: str = "") -> Self:
        """Returns a batch of other values with these places.

        Args:
          values: one for each value of this batch, or for each of `positions`, in the same order.
          positions: which values of this batch the new ones come from; None: all. Several can come from one.
          step: a label that distinguishes the messages from others with the same places.

        Raises `LocalError` if the numbers differ.
        """
        offsets = self.offsets
        if positions is not None and self.queue is not None:
            offsets = [offsets[position] for position in positions]
        return type(self)(values, self.queue, offsets, f"{self.steps}/{step}" if step else self.steps)

    def ids(self, of_places: PlaceIds | None = None) -> list[str] | None:
        """Returns the id of each message that is made of a value: 32 upper-case hexadecimal digits; None: no places.

        Without steps, they are the ids of the records that are written one by one. `of_places` does what `place_ids`
        does.
        """
        if self.queue is None:
            return None
        if len(self.offsets) != len(self):
            raise LocalError(
                f"a batch of {self.queue} was changed: it has {len(self)} values and {len(self.offsets)} offsets; use "
                "with_values"
            )
        if isinstance(self.offsets, range) or len(set(self.offsets)) == len(self.offsets):
            return (of_places or place_ids)(self.queue, self.offsets, self.steps)
        return [self._id_at(self.queue, *each) for each in zip(self.offsets, _ordinals(self.offsets), strict=True)]

    def id_at(self, position: int) -> str | None:
        """Returns the id of one message: the one at this position of `ids`."""
        if self.queue is None:
            return None
        offset = self.offsets[position]
        ordinal = 0 if isinstance(self.offsets, range) else sum(each == offset for each in self.offsets[:position])
        return self._id_at(self.queue, offset, ordinal)

    def _id_at(self, queue: MessageQueue, offset: int, ordinal: int) -> str:
        # Several values of one record: the first has the id that a single one has.
        return place_ids(queue, (offset,), f"{self.steps}\0{ordinal}" if ordinal else self.steps)[0]


def _ordinals(offsets: Iterable[int]) -> Iterator[int]:
    """Yields for each offset how many equal ones stand before it."""
    seen: dict[int, int] = {}
    for each in offsets:
        seen[each] = seen.get(each, -1) + 1
        yield seen[each]


def place_ids(queue: MessageQueue, offsets: Iterable[int], steps: str = "") -> list[str]:
    """Returns ids that depend only on the place of each message, and on the steps that changed it since."""
    prefix, tail = around_offset(queue, steps)
    begun = hashlib.blake2b(prefix, digest_size=16)
    ids = []
    for offset in offsets:
        digest = begun.copy()
        digest.update(b"%d%b" % (offset, tail))
        ids.append(digest.hexdigest())
    return "\n".join(ids).upper().split("\n") if ids else ids


def around_offset(queue: MessageQueue, steps: str) -> tuple[bytes, bytes]:
    """Returns what stands before and after the offset in the text of a place, whose digest is the id."""
    return _bytes(f"{queue.topic}/{queue.broker}/{queue.queue_id}/"), _bytes(steps)


def record_id(record: Record) -> str:
    """Returns 32 upper-case hexadecimal digits, like RocketMQ's ids, that depend only on the record's coordinates."""
    origin = f"{record.topic}/{record.broker}/{record.queue_id}/{record.queue_offset}"
    return hashlib.blake2b(_bytes(origin), digest_size=16).hexdigest().upper()


def offsets_of(records: Sequence[Record]) -> Sequence[int]:
    """Returns the queue offsets of records of one queue, as a range where they are consecutive."""
    if not records:
        return ()
    first, last = records[0][3], records[-1][3]
    if last - first == len(records) - 1:  # they ascend
        return range(first, last + 1)
    return [record[3] for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """Messages as columns, for `WriteToRocketMQ(batches=True)`. Each column has one value per message.

    Args:
      bodies: the payloads.
      topics, tags: a list, or one text for all messages; None, also in the list: as in a `Message`.
      keys: a list with the business keys of each message: as in a `Message`, or None.
      properties: a list of mappings of user properties.
      sharding_keys: a list of texts; None: no order.
      ids: stable ids, the same when the messages come again. An `id_fn` of the write takes precedence.

    Raises `LocalError` if the columns differ in length.
    """

    bodies: Sequence[bytes]
    topics: Sequence[str | None] | str | None = None
    tags: Sequence[str | None] | str | None = None
    keys: Sequence[tuple[str, ...] | list[str] | str | None] | None = None
    properties: Sequence[Any] | None = None
    sharding_keys: Sequence[str | None] | None = None
    ids: Sequence[str | None] | None = None

    def __post_init__(self) -> None:
        count = len(self.bodies)
        for field in fields(self)[1:]:
            column = getattr(self, field.name)
            if column is None or (isinstance(column, str) and field.name in ("topics", "tags")):
                continue
            if isinstance(column, (str, bytes)) or not isinstance(column, Sequence):
                raise LocalError(f"{field.name} of a MessageBatch is {column!r}; it must be a list")
            if len(column) != count:
                raise LocalError(f"a MessageBatch has {count} bodies, but {len(column)} {field.name}")

    def __len__(self) -> int:
        return len(self.bodies)

    def messages(self) -> list[Message]:
        """Returns the messages in order."""
        rows = zip(
            self.bodies,
            _each(self.topics),
            _each(self.tags),
            repeat(()) if self.keys is None else map(_keys, self.keys),
            repeat(_NO_PROPERTIES) if self.properties is None else self.properties,
            _each(self.sharding_keys),
            repeat(None),
            repeat(None),
            strict=False,
        )
        return list(map(tuple.__new__, repeat(Message), rows))  # without the constructor's handling of keywords


def _keys(value: Any) -> Any:
    """The keys of a `Message`; a value of a wrong type stays as it is, and fails alone when it is sent."""
    if type(value) is tuple:
        return value
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(value) if isinstance(value, list) else value


def _each(column: Sequence[str | None] | str | None) -> Iterable[str | None]:
    return repeat(column) if column is None or isinstance(column, str) else column


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
