"""Alerts: their ids, and values of events as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rmqio.batches import place_ids, steps_of_variant
from rmqio.errors import LocalError
from rmqio.model import Record


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


def json_value(value: Any) -> Any:
    """Returns a value with numbers that JSON does not have as texts: "Infinity", "-Infinity" and "NaN", at any depth.

    An event can have them: 1e999 is a number of JSON, and infinite in Python.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, Mapping):
        return {name: json_value(each) for name, each in value.items()}
    return [json_value(each) for each in value] if isinstance(value, (list, tuple)) else value
