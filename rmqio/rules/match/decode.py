"""Bodies of JSON to events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqio.errors import LocalError
from rmqio.serde.base import error_of_record
from rmqio.serde.json_objects import object_of as event_of

try:
    import msgspec
except ImportError as error:
    raise LocalError("rules need msgspec; install rmqio[rules]") from error

__all__ = ["Broken", "event_of", "events_of", "failure_text"]


class Broken(NamedTuple):
    """A body that is not an event."""

    reason: str


def failure_text(error: Exception) -> str:
    """Why an element is not an event. It is not quoted."""
    return "the body is nested too deep" if isinstance(error, RecursionError) else str(error)


def events_of(bodies: Sequence[bytes]) -> tuple[list[Any], dict[int, Exception]]:
    """The event in each body, None for those that are none, and the errors by position."""
    events: list[Any] = []
    broken: dict[int, Exception] = {}
    decode = msgspec.json.decode
    for at, body in enumerate(bodies):
        try:
            event = decode(body)
        except Exception:  # noqa: BLE001  # a body can be anything
            event = None
        if event.__class__ is not dict:
            try:
                event = event_of(body)
            except Exception as error:  # noqa: BLE001  # a fault of ours is counted
                broken[at] = error_of_record(error, event_of)
                event = None
        events.append(event)
    return events, broken
