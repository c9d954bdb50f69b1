"""Converts an element of the pipeline to the message to send, its topic and its id."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmqio.batches import record_id
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, MessageQueue, Record
from rmqio.sending.batches import FailedMessage
from rmqio.serde.base import error_of_record
from rmqio.transforms.coders.values import MessageCoder
from rmqio.transforms.failures.read_failures import letter_of_element
from rmqio.transforms.writing.selector import ConstantTopic, TopicSelector
from rmqio.wire.batch import copy_of, wrong_type

Serializer = Callable[[Any], Message]
IdFunction = Callable[[Any], str]


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
