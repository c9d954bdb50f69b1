"""Batches: several values that travel through a pipeline as one element, which costs as much as one."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any, Self, TypeVar

from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, Record

T = TypeVar("T")

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
      variants: texts that distinguish the values of one record, such as the rules that it matches; empty: their order
        does. An id with a variant does not depend on which other values there are.
    """

    __slots__ = ("offsets", "queue", "steps", "variants")

    def __init__(
        self,
        values: Iterable[T] = (),
        queue: MessageQueue | None = None,
        offsets: Sequence[int] = (),
        steps: str = "",
        variants: Sequence[str] = (),
    ) -> None:
        super().__init__(values)
        if queue is not None and len(offsets) != len(self):
            raise LocalError(f"a batch of {queue} has {len(self)} values, but {len(offsets)} offsets")
        self.queue = queue
        self.offsets = offsets
        if variants and len(variants) != len(self):
            raise LocalError(f"a batch has {len(self)} values, but {len(variants)} variants")
        self.steps = steps
        self.variants = variants

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self.queue, self.offsets, self.steps, self.variants)

    def with_values(
        self,
        values: Iterable[Any],
        positions: Sequence[int] | None = None,
        *,
        step: str = "",
        variants: Sequence[str] | None = None,
    ) -> Self:
        """Returns a batch of other values with these places.

        Args:
          values: one for each value of this batch, or for each of `positions`, in the same order.
          positions: which values of this batch the new ones come from; None: all. Several can come from one.
          step: a label that distinguishes the messages from others with the same places.
          variants: one for each new value; None: those of the values that they come from.

        Raises `LocalError` if the numbers differ.
        """
        offsets, there = self.offsets, self.variants
        if positions is not None:
            if self.queue is not None:
                offsets = [offsets[position] for position in positions]
            if there:
                there = [there[position] for position in positions]
        if variants is None:
            variants = there
        elif there:
            variants = [f"{one}\0{other}" for one, other in zip(there, variants, strict=True)]
        return type(self)(values, self.queue, offsets, f"{self.steps}/{step}" if step else self.steps, variants)

    def ids(self) -> list[str] | None:
        """Returns the id of each message that is made of a value: 32 upper-case hexadecimal digits; None: no places.

        Without steps, they are the ids of the records that are written one by one.
        """
        if self.queue is None:
            return None
        if len(self.offsets) != len(self):
            raise LocalError(
                f"a batch of {self.queue} was changed: it has {len(self)} values and {len(self.offsets)} offsets; use "
                "with_values"
            )
        if self.variants:
            places = list(zip(self.offsets, self.variants, strict=True))
            return [
                self._id_at(self.queue, offset, ordinal, variant)
                for (offset, variant), ordinal in zip(places, _ordinals(places), strict=True)
            ]
        if isinstance(self.offsets, range) or len(set(self.offsets)) == len(self.offsets):
            return place_ids(self.queue, self.offsets, self.steps)
        return [self._id_at(self.queue, *each) for each in zip(self.offsets, _ordinals(self.offsets), strict=True)]

    def id_at(self, position: int) -> str | None:
        """Returns the id of one message: the one at this position of `ids`."""
        if self.queue is None:
            return None
        offset = self.offsets[position]
        if self.variants:
            variant, pairs = self.variants[position], zip(self.offsets, self.variants, strict=True)
            before = [each for each, _ in zip(pairs, range(position), strict=False)]
            return self._id_at(self.queue, offset, before.count((offset, variant)), variant)
        ordinal = 0 if isinstance(self.offsets, range) else sum(each == offset for each in self.offsets[:position])
        return self._id_at(self.queue, offset, ordinal)

    def _id_at(self, queue: MessageQueue, offset: int, ordinal: int, variant: str | None = None) -> str:
        # Several values of one record: the first has the id that a single one has.
        steps = self.steps if variant is None else steps_of_variant(self.steps, variant)
        return place_ids(queue, (offset,), f"{steps}\0{ordinal}" if ordinal else steps)[0]


def steps_of_variant(steps: str, variant: str) -> str:
    """Returns the steps with which `place_ids` makes the id of a variant. The size tells it from an ordinal."""
    return f"{steps}\0{len(variant)}:{variant}"


def _ordinals(places: Iterable[Hashable]) -> Iterator[int]:
    """Yields for each place how many equal ones stand before it."""
    seen: dict[Hashable, int] = {}
    for each in places:
        seen[each] = seen.get(each, -1) + 1
        yield seen[each]


def place_ids(queue: MessageQueue, offsets: Iterable[int], steps: str = "") -> list[str]:
    """Returns ids that depend only on the place of each message, and on the steps that changed it since."""
    tail = _bytes(steps)
    begun = hashlib.blake2b(_bytes(f"{queue.topic}/{queue.broker}/{queue.queue_id}/"), digest_size=16)
    ids = []
    for offset in offsets:
        digest = begun.copy()
        digest.update(b"%d%b" % (offset, tail))
        ids.append(digest.hexdigest())
    return "\n".join(ids).upper().split("\n") if ids else ids


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
        self._check()

    def _check(self) -> None:
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
        """Returns the messages in order. Raises `LocalError` if a column was changed and is no longer as long."""
        self._check()
        count = len(self.bodies)
        rows = zip(
            self.bodies,
            _each(self.topics, count),
            _each(self.tags, count),
            repeat((), count) if self.keys is None else map(_keys, self.keys),
            repeat(_NO_PROPERTIES, count) if self.properties is None else self.properties,
            _each(self.sharding_keys, count),
            repeat(None, count),
            repeat(None, count),
            strict=True,
        )
        try:
            return list(map(tuple.__new__, repeat(Message), rows))  # without the constructor's handling of keywords
        except ValueError as error:
            raise LocalError(
                f"a MessageBatch has {count} bodies, but a column does not have as many values ({error}): give each "
                "column one value for each body"
            ) from error


def _keys(value: Any) -> Any:
    """The keys of a `Message`; a value of a wrong type stays as it is, and fails alone when it is sent."""
    if type(value) is tuple:
        return value
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(value) if isinstance(value, list) else value


def _each(column: Sequence[str | None] | str | None, count: int) -> Iterable[str | None]:
    return repeat(column, count) if column is None or isinstance(column, str) else column


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
