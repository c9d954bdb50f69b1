"""Values that fastavro would change: times without a zone, and numbers that no float can hold."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from typing import Any, Final

from rmqio.connect.rows import is_beyond_float

_EXACT: Final = 1 << 53
"""Up to here, floats hold every integer."""


def in_utc(value: Any) -> Any:
    """Returns a row whose times are in UTC. Those without a zone are: fastavro takes them in the zone of the machine.

    A field of local times gets the time in UTC, as a column of a database without a zone does.
    """
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    if isinstance(value, dict):
        return {name: in_utc(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(in_utc, value))
    return value


def changed_number(row: Any, encoded: bytes, parsed: Any) -> Any:
    """Returns a number that the encoded row does not have any more, since it has become a float; None: there is none.

    A union takes the first type that fits, so the schema alone does not say it.
    """
    large = set(_large(row))
    if not large:
        return None
    import fastavro

    kept = set(_large(fastavro.schemaless_reader(io.BytesIO(encoded), parsed, None)))
    return next(iter(sorted(large - kept)), None)


def _large(value: Any) -> Iterator[Any]:
    if is_beyond_float(value):
        yield value
    elif isinstance(value, int):
        if abs(value) > _EXACT and float(value) != value:
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _large(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _large(each)
