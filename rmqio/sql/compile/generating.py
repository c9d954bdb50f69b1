"""Rows that become several: a loop over what a row generates, around all that happens to it from there on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from rmqio.sql.compile.expressions.code import value
from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.expressions import Expr, InputRef
from rmqio.sql.planning.relations import ELEMENT, ENTRY, ROW, Shape
from rmqio.sql.types import SqlType


def emit(
    given: Expr, shape: Shape, types: Sequence[SqlType], columns: list[str], out: Emitter, loops: ExitStack
) -> list[str]:
    """Begins the loop over a list. Returns the names of all columns in it.

    Args:
      types: of the columns that are added.
      columns: the names of the others.
    """
    rows = value(given, out)
    names = [out.name("g") for _ in types]
    parts = names[:-1] if shape.has_ordinality else names
    pattern, null = parts[0], "None"
    items = f"{rows}.items()" if shape.kind == ENTRY else rows
    element = out.name("g")
    if shape.kind == ROW:
        pattern = element
    elif shape.kind != ELEMENT:
        pattern, null = f"({', '.join(parts)},)", f"({'None, ' * len(parts)})"
    if shape.has_ordinality:
        pattern, null, items = f"{names[-1]}, {pattern}", f"(None, {null})", f"enumerate({items}, 1)"
    if shape.is_outer:
        items = f"({items} if {rows} else ({null},))"
    elif given.type.is_nullable:
        items = f"({items} if {rows} else ())"
    loops.enter_context(out.block(f"for {pattern} in {items}:"))
    if shape.kind == ROW:
        nulls = f"({'None, ' * len(parts)})"
        out.line(f"{', '.join(parts)}, = {nulls} if {element} is None else {element}")
    for position, (name, kind) in enumerate(zip(names, types, strict=True)):
        out.remember(InputRef(kind, len(columns) + position), name)
    return [*columns, *names]
