"""Bodies of JSON to events; with few rules on few fields, only those that can trigger a rule, column by column.

Other fields that a rule reads are decoded for the events that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self

import msgspec

from rmqio.errors import LocalError
from rmqio.rules.match.patterns import MakeJoined
from rmqio.rules.match.tables import Tables
from rmqio.serde.base import error_of_record
from rmqio.serde.json_objects import object_of as event_of

# Bodies of JSON to events.

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


_MOST_FIELDS: Final = 24
_PLAIN: Final = frozenset({str, int, type(None), msgspec.UnsetType})
_TEXT: Final = frozenset({str})


class Columns:
    """The columns that can trigger a rule."""

    def __init__(self, tables: Tables, names: Sequence[str], decoder: Any, joined: MakeJoined) -> None:
        self._decode = decoder.decode
        self._decoder = decoder
        self._names = names
        self._make_joined = joined
        self._columns = [
            (attrgetter(f"f{at}"), tables.lookups[name], joined(tables.triggers_of(name)))
            for at, name in enumerate(names)
        ]

    @classmethod
    def of(cls, tables: Tables, fields: Iterable[str | None], joined: MakeJoined) -> Self | None:
        """Returns the columns; None: row by row is better, or all that is right.

        `joined`: makes of the atoms of a field what looks for them in a whole column, or None.
        """
        triggering = tables.triggering
        if tables.always or len(triggering) > _MOST_FIELDS or None in triggering:
            return None
        names = sorted(str(name) for name in triggering)
        if any("." in name for name in names) or any(field is None for field in fields):
            return None
        try:
            row = msgspec.defstruct(
                "Row",
                [(f"f{at}", Any, msgspec.UNSET) for at in range(len(names))],
                rename={f"f{at}": name for at, name in enumerate(names)},
                gc=False,
            )
            decoder = msgspec.json.Decoder(row)
        except (ValueError, TypeError):  # a name with a quote in it, for instance
            return None
        return cls(tables, names, decoder, joined)

    def with_tables(self, tables: Tables) -> Self | None:
        """The columns for other triggers."""
        return type(self).of(tables, tables.lookups, self._make_joined)

    def candidates(self, bodies: Sequence[bytes]) -> tuple[list[tuple[int, dict[str, Any]]], dict[int, Exception]]:
        """Returns the events that can match a rule, and the errors of bodies that are not events, by position."""
        broken: dict[int, Exception] = {}
        try:
            rows = list(map(self._decode, bodies))
            if not all(map(bytes.isascii, bodies)):
                for body in bodies:
                    str(body, "utf-8")  # the decoder does not look into fields that it skips
            numbers: Sequence[int] = range(len(bodies))
        except Exception:  # noqa: BLE001  # a body can be anything
            rows, numbers = self._singly(bodies, broken)
        left: set[int] = set()
        for get, lookup, joined in self._columns:
            column = list(map(get, rows))
            cache = lookup.cache
            kinds = {*map(type, column)}
            if joined is not None and not cache.is_on and kinds == _TEXT:
                positions = joined.candidates(column)
                if positions is not None:
                    cache.rest(len(column))
                    left |= positions
                    continue
            found: list[Any]
            if kinds <= _PLAIN:
                found = list(map(cache.__getitem__, column))
                cache.seen += len(column)
            else:
                found = [None if value is msgspec.UNSET else lookup.of(value) for value in column]
            if any(found):
                left.update(at for at, each in enumerate(found) if each is not None and each[1])
        events = []
        for at in sorted(left):
            number = numbers[at]
            try:
                events.append((number, event_of(bodies[number])))
            except Exception as error:  # noqa: BLE001  # in a field that the row skipped
                broken[number] = error_of_record(error, event_of)
        return events, broken

    def _row_of(self, event: dict[str, Any]) -> Any:
        row = self._decode(b"{}")
        for at, name in enumerate(self._names):
            if name in event:
                setattr(row, f"f{at}", event[name])
        return row

    def _singly(self, bodies: Sequence[bytes], broken: dict[int, Exception]) -> tuple[list[Any], list[int]]:
        rows, numbers = [], []
        for at, body in enumerate(bodies):
            try:
                row = self._decode(body)
                str(body, "utf-8")
            except Exception:  # noqa: BLE001  # a body can be anything
                try:
                    event = event_of(body)  # whose message says what the body is
                except Exception as error:  # noqa: BLE001  # a fault of ours is counted
                    broken[at] = error_of_record(error, event_of)
                    continue
                row = self._row_of(event)
            rows.append(row)
            numbers.append(at)
        return rows, numbers
