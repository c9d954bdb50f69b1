"""Converts elements and batches of the pipeline to the messages to send, with their topics, tags and ids."""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.coders import Coder, registry
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

from rmqio.batches import Batch, MessageBatch, place_ids, record_id
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, MessageQueue, Record
from rmqio.sending.batches import FailedMessage
from rmqio.serde.base import error_of_record
from rmqio.topics import validate_topic
from rmqio.transforms.coders import MessageCoder
from rmqio.transforms.failures import letter_of_element
from rmqio.wire.batch import copies_of, copy_of, wrong_type
from rmqio.wire.properties import encode_properties

# Topic selectors: the topic and tag for each element. They are pickled with the pipeline.


class Destination(NamedTuple):
    """A selector's choice for one element. None: no choice, so the next in the order of precedence decides."""

    topic: str | None = None
    tags: str | None = None


@runtime_checkable
class TopicSelector(Protocol):
    """Chooses where an element goes. Must be picklable; called once per element, by several threads."""

    def select(self, element: Any) -> Destination:
        """The element's destination. An error sends the element to the failed output."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantTopic:
    """Sends every element to one topic, with one tag if given."""

    topic: str
    tags: str | None = None

    def __post_init__(self) -> None:
        validate_topic(self.topic)

    def select(self, element: Any) -> Destination:
        return Destination(self.topic, self.tags)


@dataclass(frozen=True, slots=True)
class TopicFromFields:
    """Takes topic and tag from named fields of a mapping, or attributes (Beam rows, named tuples, dataclasses).

    Args:
      topic_field: name of the field with the topic; None: always `default_topic`.
      tags_field: name of the field with the tag; None: always `default_tags`.
      default_topic, default_tags: used if the field is absent, None or empty.
    """

    topic_field: str | None = None
    tags_field: str | None = None
    default_topic: str | None = None
    default_tags: str | None = None

    def __post_init__(self) -> None:
        if self.topic_field is None and self.tags_field is None:
            raise LocalError("TopicFromFields names no field: give topic_field, tags_field or both")
        if self.default_topic is not None:
            validate_topic(self.default_topic)

    def select(self, element: Any) -> Destination:
        return Destination(
            _field(element, self.topic_field, self.default_topic), _field(element, self.tags_field, self.default_tags)
        )


@dataclass(frozen=True, slots=True)
class TopicFromCallable:
    """Takes the topic, or (topic, tag), from a callable of the element; None: no choice."""

    function: Callable[[Any], str | tuple[str | None, str | None] | None]

    def select(self, element: Any) -> Destination:
        chosen = self.function(element)
        if chosen is None or isinstance(chosen, str):
            return Destination(chosen)
        if isinstance(chosen, tuple) and len(chosen) == 2 and all(c is None or isinstance(c, str) for c in chosen):
            return Destination(*chosen)
        raise LocalError(f"the topic selector returned {chosen!r}; it must return a topic, (topic, tag) or None")


def as_selector(given: TopicSelector | Callable[[Any], Any] | None) -> TopicSelector | None:
    """The selector for a user's argument. Raises `LocalError`."""
    if given is None or isinstance(given, TopicSelector):
        return given
    if callable(given):
        return TopicFromCallable(given)
    raise LocalError(
        f"selector is {given!r}; it must be a callable of the element, or one of ConstantTopic and TopicFromFields"
    )


def _field(element: Any, name: str | None, default: str | None) -> str | None:
    if name is None:
        return default
    value = element.get(name) if isinstance(element, Mapping) else getattr(element, name, None)
    if value is None or value == "":
        return default
    if not isinstance(value, str):
        raise LocalError(f"field {name!r} of the element is {value!r}; a topic or tag must be text")
    return value


# Default ids that are the same when a bundle is run again, for elements for which this is possible.
#
# After a GroupByKey or a combine by key, each firing has a unique combination of key, window and pane number. The
# hash of these and the message is the id. These cases are not safe, so they have no default:
#
# - anything in between, e.g. a Map: two keys can give equal messages, and one of them would be dropped as a copy.
# - a `Message` with keys: the same key comes with many events.
# - the global window of a stream: a stream that starts anew counts its panes anew, and gives new events old ids.
# - a key whose coder is not deterministic.

_MESSAGE: Final = MessageCoder()


@dataclass(frozen=True)
class DefaultIds:
    """Ids of the firings of one GroupByKey.

    Args:
      label: label of the write, so that two writes of one pipeline have different ids.
      run: identifies the run of a bounded pipeline, which can read other data when it is started again; empty for a
        stream.
      key_coder, window_coder: deterministic coders.
    """

    label: str
    run: str
    key_coder: Coder
    window_coder: Coder

    def id_of(self, element: Any, origin: Any, message: Message, topic: str) -> str:
        """The id of the message for a pair of key and value: 32 upper-case hexadecimal digits, like RocketMQ's ids.

        `origin` is a WindowedValue with the window and pane of the pair.
        """
        pane = origin.pane_info
        windows = sorted(self.window_coder.encode(window) for window in origin.windows)
        parts = [
            self.label.encode(),
            self.run.encode(),
            self.key_coder.encode(element[0]),
            *windows,
            b"%d/%d" % (pane.index, pane.timing),
            topic.encode("utf-8", "surrogatepass"),
            _MESSAGE.encode(message),
        ]
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest().upper()


def default_ids(pcoll: PCollection[Any], label: str, *, is_stream: bool) -> DefaultIds | None:
    """The ids for the direct output of a GroupByKey or a combine by key; None if no safe id exists."""
    windowing = pcoll.windowing
    if not _is_grouped(pcoll) or (is_stream and isinstance(windowing.windowfn, GlobalWindows)):
        return None
    element_type = pcoll.element_type
    if not isinstance(element_type, typehints.TupleConstraint) or len(element_type.tuple_types) != 2:
        return None
    try:
        key_coder = registry.get_coder(element_type.tuple_types[0]).as_deterministic_coder(label)
    except ValueError:
        return None
    window_coder = windowing.windowfn.get_window_coder()
    if not window_coder.is_deterministic():
        return None
    return DefaultIds(label, "" if is_stream else uuid.uuid4().hex, key_coder, window_coder)


def _is_grouped(pcoll: PCollection[Any]) -> bool:
    producer = pcoll.producer
    if producer is None:
        return False
    if isinstance(producer.transform, beam.GroupByKey):
        return True
    while producer is not None:
        if isinstance(producer.transform, beam.CombinePerKey):
            return pcoll in producer.outputs.values()
        producer = producer.parent
    return False


# A check of what the broker would never take, for transforms that can still say which element it came from.


def check_sendable(message: Message) -> None:
    """Raises `LocalError` if a topic's name, a delay or a property of a message cannot be sent."""
    if message.topic is not None:
        validate_topic(message.topic)
    encode_properties(message, message_id=None)


Serializer = Callable[[Any], Message]
IdFunction = Callable[[Any], str]


def ids_by(pipeline: beam.Pipeline, key: Callable[[Any], Sequence[Any]]) -> IdFunction:
    """Returns an `id_fn`: elements have the same id if `key` returns the same values for them.

    In a stream, ids stay the same when it resumes, so that copies can be dropped. In a run that ends, they are the
    run's own: the next run of a group makes other totals of the same keys and windows.
    """
    is_stream = pipeline.options.view_as(StandardOptions).streaming
    return _IdsBy(key, "" if is_stream else uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class _IdsBy:
    key: Callable[[Any], Sequence[Any]]
    run: str

    def __call__(self, element: Any) -> str:
        text = json.dumps((self.run, *self.key(element)), default=str, ensure_ascii=False)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest().upper()


class Prepared(NamedTuple):
    """The message to send for one element."""

    message: Message
    topic: str
    message_id: str | None
    """None: a random id."""


@dataclass(frozen=True, slots=True)
class MessageMaker:
    """Converts elements to messages: `Message`, `Record`, bytes, str, or anything that the serializer accepts.

    Args:
      topic: for messages for which neither the message nor the selector names a topic.
      selector: called with the element, not with its message.
      serializer: called with every element that is not a `Message`.
      id_fn: returns an element's stable id.
    """

    topic: str | None = None
    selector: TopicSelector | None = None
    serializer: Serializer | None = None
    id_fn: IdFunction | None = None

    @property
    def required_topics(self) -> frozenset[str]:
        """Topics that do not depend on an element: if one cannot be written to, the whole write is at fault."""
        selected = self.selector.topic if isinstance(self.selector, ConstantTopic) else None
        return frozenset(topic for topic in (self.topic, selected) if topic)

    def make(self, element: Any) -> Prepared:
        """The message of an element. Errors of the user's callables pass through; our own are `RmqioError`s."""
        message = self.message_of(element)
        topic = message.topic
        if self.selector is not None:
            chosen, tags = self.selector.select(element)
            topic = topic or chosen
            if tags and message.tags is None:
                message = message.replace(tags=tags)
        topic = topic or self.topic
        if not topic:
            raise self.no_topic()
        if not isinstance(topic, str):
            raise wrong_type("topic", topic)
        return Prepared(message, topic, self.id_of(element))

    def no_topic(self) -> LocalError:
        """The error for a message without a topic."""
        if self.selector is None:
            return LocalError("no topic: neither the message nor topic= names one")
        return LocalError("no topic: neither the message, nor the selector, nor topic= names one")

    def message_of(self, element: Any) -> Message:
        """The message, before its topic is decided. Raises `SerdeError`, and what a serializer of the user's raises."""
        try:
            return self.converted(element)
        except Exception as error:
            found = error_of_record(error, self.serializer)
            if found is error:
                raise
            raise found from error

    def converted(self, element: Any) -> Message:
        """The message, as `message_of`. Counts no fault of a serializer of ours."""
        if isinstance(element, Message):
            return element
        if self.serializer is not None:
            message = self.serializer(element)
            if not isinstance(message, Message):
                raise SerdeError(f"the serializer returned {type(message).__name__}; it must return rmqio.Message")
            return message
        if isinstance(element, Record):
            return copy_of(element)
        if isinstance(element, bytes):
            return Message(element)
        if isinstance(element, str):
            return Message(element.encode())
        raise SerdeError(
            f"cannot write {type(element).__name__}: give serializer=, or elements of Message, Record, bytes or str"
        )

    def id_of(self, element: Any) -> str | None:
        """The stable id of an element; None if it has none. Raises `SerdeError`, and what `id_fn` raises."""
        if self.id_fn is not None:
            message_id = self.id_fn(element)
            if not isinstance(message_id, str) or not message_id:
                raise SerdeError(f"id_fn returned {message_id!r}; it must return text that is not empty")
            return message_id
        return record_id(element) if isinstance(element, Record) else None


def letter_of_failure(
    maker: MessageMaker,
    element: Any,
    failure: FailedMessage,
    message_id: str | None = None,
    place: tuple[MessageQueue, int] | None = None,
) -> Message:
    """The dead letter of a failed element, with as much of its message as can be created.

    `message_id`, `place`: of a value of a batch.
    """
    if failure.message is None:
        with contextlib.suppress(Exception):  # a user's code, and possibly the same error that the letter is about
            message = if_encodable(maker.converted(element))
            topic = None if message is None or maker.selector is not None else message.topic or maker.topic
            failure = failure._replace(
                message=message, topic=failure.topic or (topic if isinstance(topic, str) else None)
            )
    with contextlib.suppress(Exception):
        message_id = message_id or maker.id_of(element)
    return letter_of_element(element, failure, message_id, place)


def if_encodable(message: Message | None) -> Message | None:
    """The message, or None if its fields have wrong types, so that it could not travel to the next stage."""
    if message is not None:
        try:
            MessageCoder().encode(message)
        except LocalError:
            return None
    return message


# Converts a batch to the messages to send, their topics and their ids: in bulk where all values are of one kind.

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
            ids = element.ids() if isinstance(element, Batch) else None
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
