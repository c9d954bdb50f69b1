"""JSON_ARRAYAGG and JSON_OBJECTAGG: their accumulators are lists of text that is JSON already."""

from __future__ import annotations

from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.compile.aggregates.lists import both
from rmqio.sql.functions.json import object_of
from rmqio.sql.values import ValueFailure, shown


def json_array() -> Accumulator:
    """Returns how JSON_ARRAYAGG accumulates: in the order in which rows and partial results come."""
    return Accumulator("[]", "{acc}.append({value})", list[str], both, lambda items: f"[{','.join(items)}]")


def json_object() -> Accumulator:
    """Returns how JSON_OBJECTAGG accumulates. A key that is there twice is found in the end, however rows are cut."""
    return Accumulator("[]", "{acc}.append({value})", list[tuple[str, str]], both, _object)


def _object(members: list[tuple[str, str]]) -> str:
    found: dict[str, str] = {}
    for key, value in members:
        if key in found:
            raise ValueFailure(
                f"JSON_OBJECTAGG has the key {shown(key)} twice: group by more columns, or keep one row of the key "
                "in a sub-query"
            )
        found[key] = value
    return object_of(found.items())
