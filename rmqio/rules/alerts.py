"""Alerts: their messages and ids, and values of events as JSON."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from rmqio.batches import place_ids, steps_of_variant
from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, Record

_MOST_BYTES: Final = 4_000_000
"""A broker takes 4 MiB. The event of a larger alert is left out; its place in the topic says where it is."""


def alert_id(match: Any, steps: str = "") -> str:
    """Returns an id that depends only on the place of the message and on the rule: for `id_fn` of a write.

    A message that is read again gives the same id, whichever other rules there are by then.

    Args:
      match: a `Match` of a `Record`.
      steps: what distinguishes it from alerts of the same rule and message that another step makes. With `Batch.steps`,
        it is the id that a write of the batch gives the match.

    Raises `LocalError` if the message has no place.
    """
    record = match.message
    if not isinstance(record, Record):
        raise LocalError(
            f"the match of rule {match.rule_id} has {type(record).__name__} as message, which has no place: match "
            "Records, or derive the id from the event"
        )
    return place_ids(record.queue, (record.queue_offset,), steps_of_variant(steps, match.rule_id))[0]


def alert_message(match: Any, queue: MessageQueue, offset: int) -> Message:
    """Returns the message of an alert, an object of JSON. Its key is the rule, its tag the level.

    A rule without an id has a title instead. A key has no white space, so it is percent-encoded, as in keys of SQL. An
    event that is too large, or nested too deep, is left out: `event_left_out` says so.

    Args:
      match: a `Match`.
      queue, offset: the place of the event.
    """
    keys = (re.sub(r"\s", lambda blank: quote(blank[0]), match.rule_id),)
    body = {
        "rule": match.rule_id,
        "title": match.title,
        "level": match.level,
        "tags": match.tags,
        "rules_version": match.ruleset_version,
        "conditions": [{"field": field, "condition": text, "value": value} for field, text, value in match.atoms],
        "topic": queue.topic,
        "broker": queue.broker,
        "queue": queue.queue_id,
        "offset": offset,
    }
    event = b""
    if not isinstance(match.message, dict):
        event = match.message.body  # as it is: the rules have read it, so it is JSON
    else:
        with contextlib.suppress(RecursionError, ValueError):  # nested too deep, or with an integer of too many digits
            event = _encoded(match.message)
    encoded = _encoded(body)
    if event and len(encoded) + len(event) <= _MOST_BYTES:
        return Message(b'%b,"event":%b}' % (encoded[:-1], event), keys=keys, tags=match.level)
    return Message(_encoded({**body, "event_left_out": True}), keys=keys, tags=match.level)


def _encoded(body: dict[str, Any]) -> bytes:
    # Columns of a table can have dates and decimals.
    text = json.dumps(json_value(body), ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def json_value(value: Any) -> Any:
    """Returns a value with numbers that JSON does not have as texts: "Infinity", "-Infinity" and "NaN", at any depth.

    An event can have them: 1e999 is a number of JSON, and infinite in Python.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, Mapping):
        return {name: json_value(each) for name, each in value.items()}
    return [json_value(each) for each in value] if isinstance(value, (list, tuple)) else value
