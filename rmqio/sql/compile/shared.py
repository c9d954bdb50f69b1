"""Fragments that begin with the same records, as one function: each record is decoded once, for all of them.

It decodes the columns that any of them needs. An expression that several of them need is computed when the first one
needs it, and kept for the others. An error belongs to the fragment in which it happens. A record that cannot be decoded
for all is given to each fragment by itself: a column that is bad for one of them is no matter to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import localcontext
from typing import Any

from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile import fragment
from rmqio.sql.compile.description import (
    Fragment,
    FromTable,
    Generate,
    Mapped,
    Step,
    ToGroups,
    ToRows,
    WindowStep,
)
from rmqio.sql.compile.emitter import UNSET, Emitter, is_pure
from rmqio.sql.compile.fragment import compiled, nullable, within
from rmqio.sql.compile.look_ups import LookUp, begun
from rmqio.sql.expressions import Conditional, Conversion, Expr, InputRef, Operation, inputs, transform
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.types import BITS
from rmqio.sql.values import DECIMALS, ValueFailure, in_zone

Run = Callable[..., list[Mapped]]

_CHEAP = ("=", "<>", "<", "<=", ">", ">=", "ROW", "ARRAY", "MAP")


def compiled_together(given: Sequence[Fragment]) -> Run:
    """Returns the function of fragments: from a batch, and a dict of groups for each, to what each makes of it.

    Args:
      given: fragments of one table.
    """
    with deep_trees():
        alone = [compiled(each) for each in given]
        table, columns, together = on_common_columns(given)
        with in_zone(given[0].zone):
            return within(given[0].zone, _compiled(table, columns, together, alone))


def on_common_columns(given: Sequence[Fragment]) -> tuple[Table, tuple[Column, ...], list[Fragment]]:
    """Returns the table, the columns of it that any of the fragments reads, and the fragments on these columns."""
    source = given[0].source
    assert isinstance(source, FromTable)
    used = {
        each.source.columns[i].name: each.source.columns[i]  # type: ignore[union-attr]
        for each in given
        for i in fragment.used_columns(each)
    }
    known = {each.name: at for at, each in enumerate(source.table.columns)}
    columns = tuple(sorted(used.values(), key=lambda each: known.get(each.name, len(known))))
    found: dict[Any, Expr] = {}
    return source.table, columns, [_of_columns(each, columns, found) for each in given]


def _of_columns(given: Fragment, columns: Sequence[Column], known: dict[Any, Expr]) -> Fragment:
    """The fragment as one of these columns of the table.

    Args:
      known: the expressions of all fragments. Equal ones become one object: otherwise, each operator of a chain would
        be compared with all that it is made of.
    """
    assert isinstance(given.source, FromTable)
    old = given.source.columns
    names = [each.name for each in columns]
    steps = given.steps
    if not steps or isinstance(steps[0], (Generate, LookUp, WindowStep)):
        steps = (Step(None, tuple(InputRef(each.type, i) for i, each in enumerate(old))), *steps)
    first, *others = steps

    def moved(expression: Expr) -> Expr:
        if isinstance(expression, InputRef):
            expression = replace(expression, index=names.index(old[expression.index].name))
        parts = tuple(map(id, expression.children()))
        return known.setdefault((parts or expression.type, expression), expression)

    step = Step(
        None if first.condition is None else transform(first.condition, moved),
        tuple(transform(each, moved) for each in first.projections),
    )
    return replace(given, source=FromTable(given.source.table, tuple(columns)), steps=(step, *others))


def first_steps(given: Sequence[Fragment]) -> list[Step]:
    """Returns the first steps of fragments on common columns: each has one that makes no further rows."""
    return [each.steps[0] for each in given]


def shared_expressions(steps: Sequence[Step]) -> list[Expr]:
    """Returns the expressions that several of the steps compute, each as large as possible, in their order."""
    parts = [[each for each in (step.condition, *step.projections) if each is not None] for step in steps]
    counts: dict[Expr, int] = {}
    for roots in parts:
        for each in {part for root in roots for part in _worthwhile(root)}:
            counts[each] = counts.get(each, 0) + 1
    found: dict[Expr, None] = {}
    for roots in parts:
        pending = list(reversed(roots))
        while pending:
            each = pending.pop()
            if counts.get(each, 0) > 1:
                found[each] = None
            else:
                pending += reversed(each.children())
    return list(found)


def _worthwhile(expression: Expr) -> Iterator[Expr]:
    """The parts of an expression that cost more than to look whether they are known."""
    pending = [expression]
    while pending:
        each = pending.pop()
        pending += each.children()
        is_some = (
            isinstance(each, Conditional)
            or (isinstance(each, Conversion) and not _is_wider(each))
            or (isinstance(each, Operation) and each.name not in _CHEAP and not each.name.startswith("FIELD "))
        )
        if is_some and inputs(each) and is_pure(each):
            yield each


def _is_wider(conversion: Conversion) -> bool:
    return conversion.type.kind in BITS and conversion.operand.type.kind in BITS


def _compiled(table: Table, columns: tuple[Column, ...], given: list[Fragment], alone: list[Any]) -> Run:
    out = Emitter()
    given = list(map(nullable, given))
    has_nulls = [each.statement.makes_nulls for each in given]
    out.constants.update({
        "ValueFailure": ValueFailure, "Mapped": Mapped, "localcontext": localcontext, "DECIMALS": DECIMALS,
        "unset": UNSET, "by_itself": _by_itself(alone, given),
    })  # fmt: skip
    numbers = range(len(given))
    lazy = {each: f"s{i}" for i, each in enumerate(shared_expressions(first_steps(given)))}
    with out.block("def fragment(batch, all_groups):"):
        for i in numbers:
            out.line(f"values{i}, positions{i}, failed{i} = [], [], {{}}")
            out.line(f"add{i}, place{i}, groups{i} = values{i}.append, positions{i}.append, all_groups[{i}]")
            if has_nulls[i]:
                out.line(f"nulls{i} = []")
        made = [f"Mapped(values{i}, positions{i}, failed{i}{f', nulls{i}' * has_nulls[i]})" for i in numbers]
        out.line(f"results = [{', '.join(made)}]")
        for each in given:
            begun(each.steps, out)
        with out.block("with localcontext(DECIMALS):"), out.block("for position, record in enumerate(batch):"):
            _decoded(table, columns, out)
            if lazy:
                out.line(f"{' = '.join(lazy.values())} = unset")
            for i, each in enumerate(given):
                _output(i, each, lazy, out)
        out.line("return results")
    return out.function("fragment")  # type: ignore[no-any-return]


def _decoded(table: Table, columns: tuple[Column, ...], out: Emitter) -> None:
    reads_all = Fragment(FromTable(table, columns), (), ToRows())
    names: list[str] = []
    with out.block("try:"):
        names = fragment.source_names(reads_all, out)
        if not names:
            out.line("pass")
    with out.block("except Exception:"):
        out.line("by_itself(position, record, results, all_groups)")
        out.line("continue")
    for position, name in enumerate(names):  # what was known in the block is known after it
        out.remember(InputRef(columns[position].type, position), name)


def _output(number: int, given: Fragment, lazy: dict[Expr, str], out: Emitter) -> None:
    before, begun = out.known(), len(out.lines)
    out.nulls = f"nulls{number}" if given.statement.makes_nulls else ""
    with out.block("while True:"):  # once: it costs nothing, and what leaves it leaves this output only
        with out.block("try:"):
            out.lazy = dict(lazy)
            names = [out.find(InputRef(each.type, i)) or "" for i, each in enumerate(given.source.columns)]  # type: ignore[union-attr]
            bind = f"add, place, groups = add{number}, place{number}, groups{number}"
            fragment.emit_row(given, names, out, bind)
            out.lazy = {}
        fragment.emit_failures(given, out, str(number))
        out.line("break")
    _leave(out.lines, begun)
    out.restore(before)


def _leave(lines: list[str], begun: int) -> None:
    """`continue` becomes `break`, or the loop one that ends if there are loops in it."""
    if any(each.lstrip().startswith(("for ", "while ")) for each in lines[begun + 1 :]):
        lines[begun] = lines[begun].replace("while True:", "for _ in (0,):")
        return
    for at in range(begun, len(lines)):
        if lines[at].endswith("continue"):
            lines[at] = lines[at].removesuffix("continue") + "break"


def _by_itself(alone: list[Any], given: list[Fragment]) -> Callable[..., None]:
    """Returns a function that gives a record to each fragment by itself, and adds to its results."""
    is_grouped = [isinstance(each.target, ToGroups) for each in given]

    def run(position: int, record: Any, results: list[Mapped], all_groups: list[Any]) -> None:
        for function, groups, grouped, result in zip(alone, all_groups, is_grouped, results, strict=True):
            found = function((record,), groups) if grouped else function((record,))
            result.values.extend(found.values)
            result.positions.extend(position for _ in found.positions)
            if found.nulls:
                result.nulls.extend(found.nulls)  # type: ignore[attr-defined]
            if found.failed:
                result.failed[position] = found.failed[0]

    return run
