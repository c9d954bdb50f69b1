"""Columns that nothing needs, in the relations of `rmqio.sql.planning.relations`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rmqio.sql.expressions import Expr, InputRef, conjuncts, inputs, transform
from rmqio.sql.planning.plan import Field, Relation
from rmqio.sql.planning.relations import Analytic, AnalyticCall, Over, OverCall, Repeated, Sorted, SubqueryJoin

Pruned = tuple[Relation, dict[int, int]]
Prune = Callable[[Relation, set[int]], Pruned]
"""Returns a relation with the needed columns, and their new positions."""


def pruned(relation: Relation, needed: set[int], prune: Prune) -> Pruned:
    """Does so for a relation of ours. `prune`: for any relation."""
    match relation:
        case SubqueryJoin():
            return _lookup(relation, needed, prune)
        case Over():
            return _over(relation, needed, prune)
        case Analytic():
            return _analytic(relation, needed, prune)
        case Sorted():
            found, places = prune(relation.input, needed | {each.column for each in relation.keys})
            keys = tuple(each._replace(column=places[each.column]) for each in relation.keys)
            fields = _fields(relation, places, len(found.fields))
            return replace(relation, fields=fields, input=found, keys=keys), places
    every = set(range(len(relation.fields) + isinstance(relation, Repeated)))
    found, places = prune(relation.inputs()[0], every)
    assert all(old == new for old, new in places.items())
    return relation.with_inputs((found,)), {each: each for each in range(len(relation.fields))}


def _fields(relation: Relation, places: dict[int, int], width: int) -> tuple[Field, ...]:
    """The fields at their new positions."""
    at = {new: old for old, new in places.items()}
    return tuple(relation.fields[at[each]] for each in range(width))


def _lookup(lookup: SubqueryJoin, needed: set[int], prune: Prune) -> Pruned:
    width = len(lookup.left.fields)
    read = {i for each in conjuncts(lookup.residual) for i in inputs(each)}
    added = [each for each in range(width, len(lookup.fields)) if each in needed or lookup.kind != "SCALAR"]
    values = tuple(lookup.values[each - width] for each in added) if lookup.kind == "SCALAR" else ()
    left_needed = {each for each in needed | read if each < width} | {left for left, _ in lookup.keys}
    right_needed = {each - width for each in read if each >= width} | {right for _, right in lookup.keys} | {*values}
    left, left_places = prune(lookup.left, left_needed)
    right, right_places = prune(lookup.right, right_needed)
    columns = {old: new for old, new in left_places.items() if old in left_needed}
    columns |= {old + width: new + len(left.fields) for old, new in right_places.items()}
    found = replace(
        lookup,
        fields=tuple(each._replace(is_time=False) for each in left.fields) + tuple(lookup.fields[i] for i in added),
        left=left,
        right=right,
        keys=tuple((left_places[one], right_places[other]) for one, other in lookup.keys),
        residual=None if lookup.residual is None else _moved(lookup.residual, columns),
        values=tuple(right_places[each] for each in values),
    )
    places = {old: new for old, new in left_places.items() if old in left_needed}
    places |= {old: len(left.fields) + i for i, old in enumerate(added)}
    return found, places


def _over(over: Over, needed: set[int], prune: Prune) -> Pruned:
    width = len(over.input.fields)
    kept = [each for i, each in enumerate(over.calls) if width + i in needed]
    if not kept:  # nothing but the rows, which are those of the input
        return prune(over.input, needed)
    read = {each for each in needed if each < width} | {over.time, *over.keys}
    for each in kept:
        read |= {at for at in (each.call.argument, each.call.condition, each.default) if at is not None}
    found, places = prune(over.input, read)
    calls = tuple(_call(each, places) for each in kept)
    results = tuple(over.fields[width + i] for i, each in enumerate(over.calls) if each in kept)
    fields = tuple(each._replace(is_time=False) for each in found.fields) + results
    keys = tuple(places[each] for each in over.keys)
    columns = {old: new for old, new in places.items() if old in read}
    columns |= {width + over.calls.index(each): len(found.fields) + i for i, each in enumerate(kept)}
    return replace(over, fields=fields, input=found, keys=keys, time=places[over.time], calls=calls), columns


def _analytic(analytic: Analytic, needed: set[int], prune: Prune) -> Pruned:
    width = len(analytic.input.fields)
    kept = [each for i, each in enumerate(analytic.calls) if width + i in needed]
    if not kept:  # nothing but the rows, which are those of the input
        return prune(analytic.input, needed)
    read = {each for each in needed if each < width} | {*analytic.keys, *(each.column for each in analytic.order)}
    for each in kept:
        read |= {at for at in (each.call.argument, each.call.condition, each.default) if at is not None}
    found, places = prune(analytic.input, read)
    results = tuple(analytic.fields[width + i] for i, each in enumerate(analytic.calls) if each in kept)
    columns = {old: new for old, new in places.items() if old in read}
    columns |= {width + analytic.calls.index(each): len(found.fields) + i for i, each in enumerate(kept)}
    pruned = replace(
        analytic,
        fields=tuple(each._replace(is_time=False) for each in found.fields) + results,
        input=found,
        keys=tuple(places[each] for each in analytic.keys),
        order=tuple(each._replace(column=places[each.column]) for each in analytic.order),
        calls=tuple(_analytic_call(each, places) for each in kept),
    )
    return pruned, columns


def _analytic_call(given: AnalyticCall, places: dict[int, int]) -> AnalyticCall:
    def place(at: int | None) -> int | None:
        return None if at is None else places[at]

    call = replace(given.call, argument=place(given.call.argument), condition=place(given.call.condition))
    return replace(given, call=call, default=place(given.default))


def _call(over: OverCall, places: dict[int, int]) -> OverCall:
    def place(at: int | None) -> int | None:
        return None if at is None else places[at]

    call = replace(over.call, argument=place(over.call.argument), condition=place(over.call.condition))
    return replace(over, call=call, default=place(over.default))


def _moved(expression: Expr, places: dict[int, int]) -> Expr:
    return transform(
        expression, lambda each: replace(each, index=places[each.index]) if isinstance(each, InputRef) else each
    )
