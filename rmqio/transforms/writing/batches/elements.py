"""Converts a batch to the messages to send, their topics and their ids: in bulk where all values are of one kind."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from rmqio.batches import Batch, MessageBatch
from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, Record
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.wire.batch import copies_of, wrong_type
from rmqio.wire.ids import place_ids

_own_topic = operator.itemgetter(Message._fields.index("topic"))


@dataclass(slots=True)
class MadeBatch:
    """The messages of one batch, and the values that give none."""

    messages: list[Message]
    topics: Sequence[str]
    """One for each message, or one for all."""
    ids: Sequence[str | None]
    positions: Sequence[int]
    """The index in the batch of each message's value."""
    failed: dict[int, tuple[Message | None, Exception]] = field(default_factory=dict)
    """Values that cannot be sent, by position."""


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Converts lists, `Batch`es and `MessageBatch`es as `MessageMaker` converts each of their values."""

    maker: MessageMaker

    def make(self, element: Any) -> MadeBatch:
        """The messages of a batch. Raises `LocalError` if it is none."""
        maker = self.maker
        if isinstance(element, MessageBatch):
            values: Sequence[Any] = element.messages()
            ids = element.ids
        elif isinstance(element, (list, tuple)):
            values = element
            ids = element.ids(place_ids) if isinstance(element, Batch) else None
        else:
            raise LocalError(
                f"WriteToRocketMQ(batches=True) writes lists and MessageBatch, not {type(element).__name__}"
            )
        if maker.selector is not None or maker.id_fn is not None:
            return self._one_by_one(values, ids)
        made = self._in_bulk(values, ids) if maker.serializer is None else self._serialized(values, ids)
        return self._one_by_one(values, ids) if made is None else self._with_topics(made)

    def _in_bulk(self, values: Sequence[Any], ids: Sequence[str | None] | None) -> MadeBatch | None:
        """The messages if all values are of one usual kind, else None. Topics are missing."""
        kinds = {*map(type, values)}
        if kinds == {Message}:
            messages = values if isinstance(values, list) else list(values)
        elif kinds == {bytes}:
            messages = MessageBatch(bodies=values).messages()
        elif kinds == {str}:
            try:
                messages = MessageBatch(bodies=[*map(str.encode, values)]).messages()
            except UnicodeEncodeError:
                return None
        elif kinds == {Record}:
            messages = copies_of(list(values))
            ids = ids or _ids_of(values)
        else:
            return None
        return MadeBatch(messages, (), ids or [None] * len(messages), range(len(messages)))

    def _serialized(self, values: Sequence[Any], ids: Sequence[str | None] | None) -> MadeBatch:
        """The serializer's messages. Topics are missing."""
        messages, failed = _all(self.maker.message_of, values)
        made = _made(messages, ids, failed, len(values))
        if ids is None and Record in {*map(type, values)}:
            made.ids = [self.maker.id_of(values[position]) for position in made.positions]
        return made

    def _one_by_one(self, values: Sequence[Any], ids: Sequence[str | None] | None) -> MadeBatch:
        prepared, failed = _all(self.maker.make, values)
        made = _made([each.message for each in prepared], ids, failed, len(values))
        made.topics = [each.topic for each in prepared]
        if self.maker.id_fn is not None or ids is None:
            made.ids = [each.message_id for each in prepared]
        return made

    def _with_topics(self, made: MadeBatch) -> MadeBatch:
        default = self.maker.topic
        with contextlib.suppress(TypeError):  # a topic that has no hash is not text
            own = {*map(_own_topic, made.messages)}
            only = own.pop() or default if len(own) == 1 else None
            if only and isinstance(only, str):
                made.topics = (only,)
                return made
        topics: list[Any] = [
            message[1] or default or None for message in made.messages
        ]  # by position: this runs per message
        with contextlib.suppress(TypeError):
            named = {*topics}
            if len(named) == 1 and isinstance(topics[0], str):
                made.topics = (topics[0],)
                return made
            if all(isinstance(topic, str) for topic in named):
                made.topics = topics
                return made
        rows = list(zip(made.messages, topics, made.ids, made.positions, strict=True))
        failed = {row[3]: (row[0], self._wrong_topic(row[1])) for row in rows if not isinstance(row[1], str)}
        good = [row for row in rows if isinstance(row[1], str)]
        return MadeBatch(
            [row[0] for row in good],
            [row[1] for row in good],
            [row[2] for row in good],
            [row[3] for row in good],
            made.failed | failed,
        )

    def _wrong_topic(self, topic: Any) -> LocalError:
        return self.maker.no_topic() if topic is None else wrong_type("topic", topic)


def _all(function: Callable[[Any], Any], values: Iterable[Any]) -> tuple[list[Any], dict[int, Any]]:
    """The results in order, and what each other value has raised, by position."""
    results: list[Any] = []
    failed: dict[int, tuple[Message | None, Exception]] = {}
    left = iter(values)
    while True:
        try:  # outside of the loop, which goes on after the value that failed
            for value in left:
                results.append(function(value))  # a comprehension would lose them all
            return results, failed
        except Exception as error:  # noqa: BLE001  # a user's callable can raise anything
            message = value if isinstance(value, Message) else None
            failed[len(results) + len(failed)] = message, error


def _made(messages: list[Message], ids: Sequence[str | None] | None, failed: dict[int, Any], count: int) -> MadeBatch:
    positions: Sequence[int] = range(count)
    if failed:
        positions = [position for position in positions if position not in failed]
    if ids is None:
        ids = [None] * len(messages)
    elif failed:
        ids = [ids[position] for position in positions]
    return MadeBatch(messages, (), ids, positions, failed)


def _ids_of(records: Sequence[Record]) -> list[str | None]:
    """The ids of records, which depend only on their coordinates."""
    queues = {record[:3] for record in records}
    if len(queues) == 1:
        return [*place_ids(MessageQueue(*queues.pop()), [record[3] for record in records])]
    return [place_ids(record.queue, (record[3],))[0] for record in records]


def topics_of(made: MadeBatch) -> Iterable[str]:
    """The topic of each message."""
    return repeat(made.topics[0], len(made.messages)) if len(made.topics) == 1 else made.topics
