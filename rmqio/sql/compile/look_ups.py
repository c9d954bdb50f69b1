"""Look-ups in dimension tables: what a worker must know of a table, its keys, and the loop over the rows of a key."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from rmqio.interfaces import ClientFactory
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.code import skip_unless, value
from rmqio.sql.compile.description import Step
from rmqio.sql.compile.emitter import Emitter
from rmqio.sql.expressions import Expr, InputRef
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import pack
from rmqio.sql.types import APPROXIMATE, SqlType
from rmqio.sql.values import session_zone

# Definitions of dimension tables: all that a worker needs to load one.

Row = tuple[Any, ...]


class Lease(Protocol):
    """A table that somebody uses. It is given back when nothing refers to the lease any more."""

    def getter(self) -> Callable[[Any], Sequence[Row]]:
        """Returns the function from a key to its rows, of the table as it is now. The first one loads it.

        A key is a value, or a tuple if it has several columns. No column of it is NULL.

        Raises `SqlError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Dimension:
    """A table to look up in. It travels to the workers.

    Attributes:
      table: where the rows come from.
      columns: the columns of the table that are read.
      steps: filters and projections, from those columns to `fields`.
      fields: the columns of the rows that are kept.
      keys: the positions of the key's columns among them.
      job: the job that loads it: another one loads its own copy.
      factory: creates clients, if the table is a topic.
      zone: of the session in which it was planned.
    """

    table: Table
    columns: tuple[Column, ...]
    steps: tuple[Step, ...]
    fields: tuple[Field, ...]
    keys: tuple[int, ...]
    job: str = ""
    factory: ClientFactory | None = None
    zone: str = field(default_factory=session_zone)

    def identity(self) -> str:
        """Returns a text that is the same for dimensions with the same rows."""
        options = self.table.options
        primary = self.table.primary_key
        parts = (
            options.connector, options.topic, options.name_server, options.format, options.on_error,
            sorted((name, each.value) for name, each in options.of_format.items()),
            options.of_connector.path, options.of_connector.url, options.of_connector.table_name,
            options.of_connector.username, options.of_connector.password, options.of_connector.password_env,
            options.of_connector.password_file, options.of_connector.refresh_ms,
            options.of_connector.skips_first_line, options.tag, options.sql, options.zone, primary,
            [(each.name, str(each.type)) for each in self.table.columns],
            [each.name for each in self.columns],
            [(each.condition, each.projections) for each in self.steps],
            [str(each.type) for each in self.fields], self.keys, self.job, self.zone,
        )  # fmt: skip
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# Keys of dimension tables: as Python's values, and as bytes.


def key_maker(kinds: Sequence[SqlType], positions: Sequence[int]) -> Callable[[Row], Any]:
    """Returns the function from a row to its key of these types; None if a column of it is NULL or NaN."""
    if len(positions) == 1 and kinds[0].kind not in APPROXIMATE:
        (place,) = positions
        return lambda row: row[place]

    def of(row: Row) -> Any:
        found = [row[each] for each in positions]
        if any(each is None or each != each for each in found):
            return None
        return tuple(found) if len(found) > 1 else found[0]

    return of


def packed_key(key: Any) -> bytes:
    """Returns the bytes of a key: the same for keys that are equal, also if one has an integer and one a float.

    Raises `UnicodeEncodeError` for text with half of a surrogate pair.
    """
    kind = type(key)
    if kind is int or kind is str:
        try:
            return pack(key)
        except OverflowError:
            return pack(str(key))
    return pack(tuple(map(_plain, key)) if kind is tuple else _plain(key))


def _plain(value: Any) -> Any:
    """A value of which equal ones have the same bytes. No text is compared with a number."""
    if isinstance(value, (float, Decimal)):
        try:
            top, bottom = value.as_integer_ratio()
        except (OverflowError, ValueError):  # infinite
            return str(float(value))
        if bottom != 1:
            return f"{top}/{bottom}"
        value = top
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp(Step):
    """Each row becomes the pairs of it and the rows of a dimension that have its key.

    Attributes:
      dimension: the table.
      acquire: gets the table in a worker.
      kind: INNER; or LEFT: a row without any other is paired with NULLs.
      fields: the columns of the row.
      keys: what is equal to the dimension's key, of the row.
      residual: a condition on the columns of both.
      is_unique: whether it finds one row at most.
    """

    dimension: Dimension
    acquire: Callable[[Dimension], Lease]
    kind: str
    fields: tuple[Field, ...]
    keys: tuple[Expr, ...]
    residual: Expr | None
    is_unique: bool = False


def begun(steps: Sequence[object], out: Emitter) -> None:
    """Adds what a batch does first: it takes the table of each look-up as it is now. The first one loads it."""
    for step in steps:
        if isinstance(step, LookUp) and step not in out.getters:
            lease, getter = out.name("lease"), out.name("get")
            out.constants[lease] = step.acquire(step.dimension)
            out.line(f"{getter} = {lease}.getter()")
            out.getters[step] = getter


def variant_of(found: tuple[object, ...]) -> str:
    """Returns what distinguishes the message of a row from others of its record: what was looked up for it."""
    return hashlib.blake2b(pack(found), digest_size=12).hexdigest()


@contextlib.contextmanager
def looked_up(step: LookUp, columns: list[str], out: Emitter) -> Iterator[list[str]]:
    """Adds the loop of a look-up that has begun. Yields the columns of a pair, within the loop."""
    get = out.getters[step]
    rows, row = out.name("rows"), out.name("row")
    out.line(f"{rows} = {_rows(step, get, out)}")
    pair = out.places.columns
    if pair is not None:
        pair = pair.with_names([each.name for each in step.dimension.fields])
    kinds = step.dimension.fields
    none = f"(({', '.join(['None'] * len(kinds))},),)"
    if step.kind == "LEFT" and step.residual is not None:
        kept = out.name("kept")
        out.line(f"{kept} = []")
        with out.block(f"for {row} in {rows}:"):
            _loaded(step, columns, row, out)
            out.places.columns = pair
            skip_unless(step.residual, out)
            out.line(f"{kept}.append({row})")
        rows = kept
    with out.block(f"for {row} in {rows}{f' or {none}' if step.kind == 'LEFT' else ''}:"):
        joined = _loaded(step, columns, row, out)
        out.places.columns = pair
        if step.kind == "INNER" and step.residual is not None:
            skip_unless(step.residual, out)
        yield joined


def _rows(step: LookUp, get: str, out: Emitter) -> str:
    """The rows of the key; none if a column of it is NULL or NaN."""
    names = [value(each, out) for each in step.keys]
    places = list(zip(names, step.keys, strict=True))
    nulls = [f"{name} is None" for name, each in places if each.type.is_nullable and (name.isidentifier())]
    nulls += [f"{name} != {name}" for name, each in places if each.type.kind in APPROXIMATE]
    key = f"({', '.join(names)})" if len(names) > 1 else names[0]
    return f"() if {' or '.join(nulls)} else {get}({key})" if nulls else f"{get}({key})"


def _loaded(step: LookUp, columns: list[str], row: str, out: Emitter) -> list[str]:
    """Gives names to the columns of a pair. Those of the row have them already."""
    out.forget_inputs()
    for position, (name, each) in enumerate(zip(columns, step.fields, strict=True)):
        if name:
            out.remember(InputRef(each.type, position), name)
    found = []
    for position, each in enumerate(step.dimension.fields):
        name = out.name("d")
        out.line(f"{name} = {row}[{position}]")
        out.remember(InputRef(each.type, len(columns) + position), name)
        found.append(name)
    return [*columns, *found]
