"""Sub-queries in expressions: what the sub-query says of each row, by key."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BooleanCoder, BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer

from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import Constant, Expr
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.joins import EXPIRY, FOR_EVER
from rmqio.sql.runtime.outputs import FailedRows, RowsFn
from rmqio.sql.values import ValueFailure

Rows = tuple[int, list[bytes]]
"""The side, and rows of it."""
SHARDS: Final = 16
"""Among so many workers the rows are divided for which a sub-query says the same."""


@dataclass(frozen=True, slots=True)
class SubqueryJoinSpec:
    """Describes a lookup.

    Attributes:
      kind: SEMI, MARK or SCALAR.
      left, right: the columns of the inputs.
      residual: a condition on the columns of both.
      values: of SCALAR, the columns of the right that are added.
      fragment: what happens to a row with what was added.
      side: if the rows go into a join, which input of it they are.
      place: of SCALAR, where the sub-query stands, and its text.
    """

    kind: str
    left: tuple[Field, ...]
    right: tuple[Field, ...]
    residual: Expr | None
    values: tuple[int, ...]
    fragment: Fragment
    side: int = 0
    place: str = ""


class _Partners:
    """Rows of the right of one key, and whether a row of the left has a partner among them."""

    def __init__(self, spec: SubqueryJoinSpec) -> None:
        self.left, self.right = unpacker(spec.left), unpacker(spec.right)
        self._test: Any = None
        self._letters: list[Any] = []
        if spec.residual is not None:
            step = Step(spec.residual, (Constant(types.BOOLEAN, True),))
            statement = spec.fragment.statement
            fragment = Fragment(FromRows(spec.left + spec.right), (step,), ToRows(), statement=statement)
            self._test = compiled(fragment)
            self._failed_rows = FailedRows(fragment)

    def is_needed(self, found: int) -> bool:
        """Whether one more row of the right can say more."""
        return self._test is not None or not found

    def given_letters(self) -> list[Any]:
        """Returns the dead letters of pairs whose condition failed since the last call."""
        found, self._letters = self._letters, []
        return found

    def rows(self, packed: list[bytes]) -> list[Any]:
        """Returns rows of the right as `has` takes them: decoded, if a condition looks at them."""
        return packed if self._test is None else list(map(self.right, packed))

    def has(self, row: tuple[Any, ...], partners: list[Any]) -> bool:
        if self._test is None or not partners:
            return bool(partners)
        pairs = [row + each for each in partners]
        mapped = self._test(pairs)
        if mapped.failed or mapped.nulls:
            self._letters += self._failed_rows.outputs(pairs, mapped.failed, mapped.nulls)
        return bool(mapped.values)


class SubqueryJoinFn(RowsFn):
    """Adds what the right says to the rows of the left, of one key, of inputs that end."""

    def __init__(self, spec: SubqueryJoinSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._partners = _Partners(self._spec)

    def process(
        self, element: tuple[bytes, Iterable[Rows]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        _, found = element
        is_scalar = self._spec.kind == "SCALAR"
        partners: list[bytes] = []
        for side, rows in found:
            if side and (is_scalar or self._partners.is_needed(len(partners))):
                partners += rows
        if not partners and self._spec.kind == "SEMI":
            return
        added = self._scalar(partners) if is_scalar else ()
        decoded = [] if is_scalar else self._partners.rows(partners)
        for side, rows in found:
            if not side:
                yield from self.emitted(list(self._found(rows, decoded, added)), timestamp.micros)
        yield from self._partners.given_letters()

    def _scalar(self, partners: list[bytes]) -> tuple[Any, ...]:
        if len(partners) > 1:
            statement = self._spec.fragment.statement.name
            place = f" ({self._spec.place})" if self._spec.place else ""
            raise ValueFailure(
                f"a sub-query as a value has more than one row{place}: take an aggregate of them, such as "
                "MAX(column), or the row WHERE rn = 1 of ROW_NUMBER(), or add conditions that leave one row"
                f"{f' ({statement})' if statement else ''}"
            )
        if not partners:
            return (None,) * len(self._spec.values)
        row = self._partners.right(partners[0])
        return tuple(row[each] for each in self._spec.values)

    def _found(self, rows: list[bytes], partners: list[Any], added: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        for row in map(self._partners.left, rows):
            match self._spec.kind:
                case "SEMI":
                    if self._partners.has(row, partners):
                        yield row
                case "MARK":
                    yield (*row, self._partners.has(row, partners))
                case _:
                    yield row + added


class SemiFn(RowsFn):
    """Keeps the rows of the left that have a partner, as soon as it is there. Elements are (key, (side, rows)).

    A row without a partner waits for its time to live, and a row of the right is kept for it, too; or for ever, if
    their input ends. A timer of processing time removes what is over its time.

    Args:
      ends: whether the left and the right end.
    """

    WAITING = BagStateSpec("waiting", BytesCoder())
    PARTNERS = BagStateSpec("partners", BytesCoder())
    EXPIRY = TimerSpec("expiry", TimeDomain.REAL_TIME)
    IS_SET = ReadModifyWriteStateSpec("is_set", BooleanCoder())

    def __init__(self, spec: SubqueryJoinSpec, ttl_ms: int, ends: tuple[bool, bool]) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec, self._ttl_ms = spec, ttl_ms
        self._left_ends, self._right_ends = ends

    def setup(self) -> None:
        super().setup()
        self._partners = _Partners(self._spec)

    def process(
        self,
        element: tuple[bytes, Rows],
        waiting: Any = beam.DoFn.StateParam(WAITING),
        partners: Any = beam.DoFn.StateParam(PARTNERS),
        timestamp: Any = beam.DoFn.TimestampParam,
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> Iterator[Any]:
        _, (side, rows) = element
        until_ms = time.time_ns() // 1_000_000 + self._ttl_ms
        until = EXPIRY.pack(FOR_EVER if self._left_ends else until_ms)
        kept = self._partners.rows([row[8:] for row in partners.read() if self._is_due(row)])
        if side:
            yield from self._come(rows, kept, waiting, partners, timestamp.micros)
            if self._right_ends:
                return
        else:
            found = []
            for row in rows:
                if self._partners.has(values := self._partners.left(row), kept):
                    found.append(values)
                else:
                    waiting.add(until + row)
            yield from self.emitted(found, timestamp.micros)
            yield from self._partners.given_letters()
            if self._left_ends or len(found) == len(rows):
                return
        if not is_set.read():
            expiry.set(until_ms / 1000)
            is_set.write(True)

    def _come(self, rows: list[bytes], kept: list[Any], waiting: Any, partners: Any, time_us: int) -> Iterator[Any]:
        """Partners have come: some of those that wait have one now."""
        until = EXPIRY.pack(FOR_EVER if self._right_ends else time.time_ns() // 1_000_000 + self._ttl_ms)
        if self._spec.residual is None:
            rows = rows[:1]
            if not (self._right_ends and kept):
                partners.clear()
                partners.add(until + rows[0])
        else:
            for row in rows:
                partners.add(until + row)
        found: list[Any] = []
        others = []
        come = self._partners.rows(rows)
        for row in waiting.read():
            values = self._partners.left(row[8:])
            if not self._is_due(row):
                continue
            if self._partners.has(values, come):
                found.append(values)
            else:
                others.append(row)
        if found:
            waiting.clear()
            for row in others:
                waiting.add(row)
            yield from self.emitted(found, time_us)
        yield from self._partners.given_letters()

    @staticmethod
    def _is_due(row: bytes) -> bool:
        return bool(EXPIRY.unpack_from(row)[0] > time.time_ns() // 1_000_000)

    @on_timer(EXPIRY)
    def expire(
        self,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        partners: Any = beam.DoFn.StateParam(PARTNERS),
        expiry: Any = beam.DoFn.TimerParam(EXPIRY),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> None:
        """Removes the rows that are over their time."""
        next_ms = FOR_EVER
        for state in (waiting, partners):
            kept = [row for row in state.read() if self._is_due(row)]
            state.clear()
            for row in kept:
                state.add(row)
                next_ms = min(next_ms, EXPIRY.unpack_from(row)[0])
        if next_ms < FOR_EVER:
            expiry.set(next_ms / 1000)
        else:
            is_set.clear()


def divided(element: tuple[bytes, Rows]) -> Iterator[tuple[bytes, Rows]]:
    """Divides the rows of the left among the shards of their key."""
    import zlib

    key, (side, rows) = element
    shards: dict[int, list[bytes]] = {}
    for row in rows:
        shards.setdefault(zlib.crc32(row) % SHARDS, []).append(row)
    for shard, found in shards.items():
        yield key + bytes((shard,)), (side, found)


def copied(element: tuple[bytes, Rows]) -> Iterator[tuple[bytes, Rows]]:
    """Gives rows of the right to all shards of their key."""
    key, found = element
    for shard in range(SHARDS):
        yield key + bytes((shard,)), found


def fewest(element: tuple[bytes, Rows]) -> tuple[bytes, Rows]:
    """Leaves out rows of the right that say no more than others: one is enough, and two are too many for a value."""
    key, (side, rows) = element
    return key, (side, rows[:2])
