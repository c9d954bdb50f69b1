"""Elements to what a matcher takes: bodies of JSON, or events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from rmqio.errors import LocalError
from rmqio.model import Message, Record


def body_of(element: Any) -> bytes | None:
    """The body of an element; None: it is an event, or can be made one."""
    if isinstance(element, (Record, Message)):
        return element.body
    if isinstance(element, bytes):
        return element
    return element.encode("utf-8", "surrogatepass") if isinstance(element, str) else None


def event_of_element(element: Any) -> Mapping[str, Any]:
    """The event that an element is: a mapping, a `beam.Row` or a named tuple. Raises `LocalError`."""
    event = _plain(element)
    if not isinstance(event, Mapping):
        raise LocalError(
            f"MatchRules takes bodies of JSON, Records, dicts, Rows and named tuples, and this is "
            f"{type(element).__name__}; for lists of them, give batches=True"
        )
    return event


def _plain(value: Any) -> Any:
    if isinstance(value, beam.Row):
        return {name: _plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
