"""The optimizer's rules for dimension tables: what is filtered before the look-up, and what is kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rmqio.sql.expressions import (
    Constant,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Not,
    Operation,
    all_of,
    conjuncts,
    inputs,
    shifted,
    walk,
)
from rmqio.sql.planning.plan import Calc, Field, LookupJoin, Relation

_SAFE: Final = ("=", "<>", "<", "<=", ">", ">=", "LIKE", "IS NOT DISTINCT FROM")


def push_lookup(
    calc: Calc,
    join: LookupJoin,
    filtered: Callable[[Relation, list[Expr]], Relation],
    is_pure: Callable[[Expr], bool],
) -> Calc:
    """Returns the Calc over the join with conditions moved: those of the row before it, those of the dimension into it.

    A condition that can fail is not computed on the dimension's rows when it is loaded, since nobody may look for them.
    """
    width = len(join.input.fields)
    before, loaded, rest = [], [], []
    for each in conjuncts(calc.condition):
        used = inputs(each)
        if used and max(used) < width and is_pure(each):
            before.append(each)
        elif used and min(used) >= width and join.kind == "INNER" and _cannot_fail(each):
            loaded.append(shifted(each, -width))
        else:
            rest.append(each)
    residual = []
    for each in conjuncts(join.residual):
        used = inputs(each)
        if used and min(used) >= width and _cannot_fail(each):
            loaded.append(shifted(each, -width))
        elif used and max(used) < width and join.kind == "INNER" and is_pure(each):
            before.append(each)
        else:
            residual.append(each)
    found = replace(
        join,
        input=filtered(join.input, before),
        dimension=filtered(join.dimension, loaded),
        residual=all_of(residual),
    )
    return replace(calc, input=found, condition=all_of(rest))


def _cannot_fail(expression: Expr) -> bool:
    return all(
        isinstance(each, (InputRef, Constant, Logical, Not, Is, Membership))
        or (isinstance(each, Operation) and each.name in _SAFE)
        for each in walk(expression)
    )


def prune_lookup(
    join: LookupJoin,
    needed: set[int],
    prune: Callable[[Relation, set[int]], tuple[Relation, dict[int, int]]],
    moved: Callable[[Expr, dict[int, int]], Expr],
) -> tuple[Relation, dict[int, int]]:
    """Returns the join with the needed columns, and their new positions."""
    width = len(join.input.fields)
    needed = needed | {i for each in conjuncts(join.residual) for i in inputs(each)}
    left_needed = {each for each in needed if each < width} | {i for key, _ in join.keys for i in inputs(key)}
    right_needed = {each - width for each in needed if each >= width} | {place for _, place in join.keys}
    left, left_places = prune(join.input, left_needed)
    right, right_places = prune(join.dimension, right_needed)
    places = {old: new for old, new in left_places.items() if old in left_needed}
    places |= {old + width: new + len(left.fields) for old, new in right_places.items() if old in right_needed}
    by_new = {new: join.fields[width + old] for old, new in right_places.items() if old in right_needed}
    fields = tuple(by_new.get(i, Field(each.name, each.type.nullable())) for i, each in enumerate(right.fields))
    return replace(
        join,
        fields=left.fields + fields,
        input=left,
        dimension=right,
        keys=tuple((moved(key, left_places), right_places[place]) for key, place in join.keys),
        residual=None if join.residual is None else moved(join.residual, places),
    ), places
