"""Topic selectors: the topic and tag for each element. They are pickled with the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rmqio.errors import LocalError
from rmqio.topics import validate_topic


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
