"""The events of matches: what group and value a correlation takes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmqio.errors import LocalError
from rmqio.rules.field_values import members


def event_of(message: Any) -> Mapping[str, Any]:
    """Returns the event of a match's message: a body of JSON, a record, a dict, a Row or a named tuple.

    Raises `LocalError` if it is none.
    """
    is_message = hasattr(message, "body") and hasattr(message, "properties")  # a Row can have a field of that name
    body = message.body if is_message else message
    if isinstance(body, (bytes, str)):
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LocalError(f"the message of a match is no JSON: {error}") from error
    elif hasattr(message, "_asdict"):
        found = message._asdict()
    elif hasattr(message, "as_dict"):
        found = message.as_dict()
    else:
        found = message
    if not isinstance(found, Mapping):
        raise LocalError(f"Correlate takes matches with their messages, and this one has {type(found).__name__}")
    return found


def single(event: Mapping[str, Any], path: str) -> Any:
    """Returns the value of a field, a list of them if there are several; None: there is none, or it is null."""
    found = [each for each in members(event, path) if each is not None]
    return found[0] if len(found) == 1 else found or None
