"""Elements to what a matcher takes: bodies of JSON, or events."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final

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


_SINGLE: Final = frozenset({str, int, float, bool, bytes, type(None)})


def _plain(value: Any) -> Any:
    """The value with Rows and named tuples as dicts, at any depth; the same object if it has none."""
    if value.__class__ in _SINGLE:
        return value
    if isinstance(value, beam.Row):
        return {name: _plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        changed = {name: plain for name, each in value.items() if (plain := _plain(each)) is not each}
        return {**value, **changed} if changed else value
    if isinstance(value, (list, tuple)):
        plain_members = [_plain(each) for each in value]
        return plain_members if any(map(operator.is_not, plain_members, value)) else value
    return value
