"""Bodies of JSON to events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqio.errors import LocalError, SerdeError

try:
    import msgspec
except ImportError as error:
    raise LocalError("rules need msgspec; install rmqio[rules]") from error


class Broken(NamedTuple):
    """A body that is not an event."""

    reason: str


def failure_text(error: Exception) -> str:
    """Why a body is not an event. The body is not quoted."""
    if isinstance(error, UnicodeDecodeError):
        return f"the body is not UTF-8: byte {error.start}"
    if isinstance(error, RecursionError):
        return "the body is nested too deep"
    if isinstance(error, SerdeError):
        return str(error)
    return f"the body is not JSON: {error}" if isinstance(error, msgspec.MsgspecError) else str(error)


def event_of(body: bytes) -> dict[str, Any]:
    """The event in a body. Raises what `failure_text` explains."""
    try:
        event = msgspec.json.decode(body)
    except msgspec.ValidationError:  # a number beyond a double, or with too many digits: all else is a DecodeError
        event = _with_infinite_numbers(body)
    if event.__class__ is not dict:
        raise SerdeError(f"the body is JSON, but no object: {_JSON_NAMES.get(type(event), 'text')}")
    found: dict[str, Any] = event
    return found


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
            except Exception as error:  # noqa: BLE001
                broken[at] = error
                event = None
        events.append(event)
    return events, broken


def _with_infinite_numbers(body: bytes) -> Any:
    """The value of a body; numbers that are too large are infinite, so that no rule depends on what others read."""
    try:
        return json.loads(body, parse_int=_whole_number, parse_constant=_no_constant)
    except ValueError as error:
        raise SerdeError(f"the body is not JSON: {error}") from error


def _whole_number(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more than 4,300 digits
        return float(digits)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_JSON_NAMES = {list: "a list", int: "a number", float: "a number", bool: "true or false", type(None): "null"}
