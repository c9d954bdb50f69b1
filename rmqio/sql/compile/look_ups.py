"""A look-up within a fragment: a loop over the rows of a dimension table that have the row's key."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rmqio.sql.compile.expressions.code import skip_unless, value
from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.compile.steps import Step
from rmqio.sql.expressions import Expr, InputRef
from rmqio.sql.lookup.definition import Dimension, Lease
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import pack
from rmqio.sql.types import APPROXIMATE


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
