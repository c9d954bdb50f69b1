"""The events of matches: what group and value a correlation takes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqio.errors import LocalError
from rmqio.rules.field_values import members
from rmqio.rules.match.decode import event_of as decode


def event_of(message: Any) -> Mapping[str, Any]:
    """Returns the event of a match's message: a body of JSON, a record, a dict, a Row or a named tuple.

    Raises `SerdeError` for a body that is not an event, and `LocalError` for an element that is none.
    """
    is_message = hasattr(message, "body") and hasattr(message, "properties")  # a Row can have a field of that name
    body = message.body if is_message else message
    if isinstance(body, (bytes, str)):
        found = decode(body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body)
    elif hasattr(message, "_asdict"):
        found = message._asdict()
    elif hasattr(message, "as_dict"):
        found = message.as_dict()
    else:
        found = message
    if not isinstance(found, Mapping):
        raise LocalError(f"Correlate takes matches with their messages, but this one has {type(found).__name__}")
    return found


def single(event: Mapping[str, Any], paths: Sequence[str]) -> Any:
    """Returns the value of the first field that has one, a list if it has several; None: none has, or it is null."""
    for path in paths:
        found = [_plain(each) for each in members(event, path) if each is not None]
        if found:
            return found[0] if len(found) == 1 else found
    return None


def _plain(value: Any) -> Any:
    """The value as one of JSON: of equal numbers, the same."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
