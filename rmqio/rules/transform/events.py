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
            f"MatchRules takes bodies of JSON, Records, dicts, Rows and named tuples, not "
            f"{type(element).__name__}; for lists of them, give batches=True"
        )
    return event


_SINGLE: Final = frozenset({str, int, float, bool, bytes, type(None)})
_WITH_MEMBERS: Final = (beam.Row, Mapping, list, tuple)
_DEEPEST: Final = 1_001
"""One more than the levels of JSON that Python reads; a list that contains itself has more."""


def _plain(value: Any) -> Any:
    """The value with Rows and named tuples as dicts, at any depth; the same object if it has none."""
    if _is_plain(value):
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


def _is_plain(value: Any) -> bool:
    """Whether there is nothing to replace. It does not recurse: what is not too deep for JSON is not so here."""
    rest = [iter((value,))]
    while rest and len(rest) < _DEEPEST:
        for one in rest[-1]:
            if one.__class__ is dict:
                rest.append(iter(one.values()))
                break
            if one.__class__ is list:
                rest.append(iter(one))
                break
            if one.__class__ not in _SINGLE and isinstance(one, _WITH_MEMBERS):
                return False
        else:
            rest.pop()
    return not rest
