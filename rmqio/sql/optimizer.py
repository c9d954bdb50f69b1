"""Rewrites a plan so that it does less: conditions move to where rows come from, columns that nothing needs go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.emitter import is_pure
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import (
    Constant,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Not,
    NotNull,
    Operation,
    all_of,
    conjuncts,
    inputs,
    shifted,
    substituted,
    transform,
    walk,
)
from rmqio.sql.functions import registry
from rmqio.sql.planning.plan import (
    Aggregate,
    Calc,
    Field,
    Interval,
    Join,
    LookupJoin,
    Rank,
    Relation,
    SameWindow,
    Scan,
    Sink,
    Union,
    Windowed,
)
from rmqio.sql.planning.ranks import with_limits, without_limits
from rmqio.sql.planning.relations import (
    Analytic,
    AnalyticCall,
    Expand,
    Over,
    OverCall,
    Repeated,
    Sorted,
    SubqueryJoin,
)
from rmqio.sql.user.definition import UserCall

# Constant expressions are computed once, when the statement is planned.
#
# Only what is the same whenever it is computed. An expression that fails and was not refused
# (`analysis/values/failing`) stays as it is: it stands where not every row gets to, and is an error of the rows that
# do, as in Flink.

_KEPT: Final = ("ARRAY", "MAP", "ROW", "MULTISET", "NULL")
"""Values of these types are made anew for each row."""


def folded(relation: Relation) -> Relation:
    """Returns the relation with its constant expressions computed."""
    relation = relation.with_inputs(tuple(map(folded, relation.inputs())))
    match relation:
        case Calc():
            return replace(
                relation,
                condition=all_of([each for each in map(fold, conjuncts(relation.condition)) if not _is_true(each)]),
                projections=tuple(map(fold, relation.projections)),
            )
        case Join() if relation.residual is not None:
            return replace(relation, residual=fold(relation.residual))
    return relation


def _is_true(condition: Expr) -> bool:
    return isinstance(condition, Constant) and condition.value is True


def fold(expression: Expr) -> Expr:
    """Returns the expression with its constant parts computed."""
    return transform(expression, _folded)


def _folded(expression: Expr) -> Expr:
    children = expression.children()
    if not children or isinstance(expression, NotNull) or expression.type.kind in _KEPT:
        return expression
    if not all(isinstance(each, Constant) and each.type.kind not in _KEPT for each in children):
        return expression
    if isinstance(expression, UserCall) and not expression.function.is_deterministic:
        return expression
    if isinstance(expression, Operation):
        function = registry.load().get(expression.name)
        if function is not None and not function.is_pure:
            return expression
    mapped = compiled(Fragment(FromRows(()), (Step(None, (expression,)),), ToRows()))([()])
    if mapped.failed or not mapped.values:
        return expression
    ((value,),) = mapped.values
    return Constant(expression.type.nullable(value is None), value)


# The optimizer's rules for dimension tables: what is filtered before the look-up, and what is kept in memory.

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


# Columns that nothing needs, in the relations of `rmqio.sql.planning.relations`.

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


def optimize(relation: Relation) -> Relation:
    """Returns a relation with the same rows."""
    return _prune_root(_push(without_limits(with_limits(_merge(folded(relation))))))


# ---- one Calc instead of two ----------------------------------------------------------------------------------------


def _merge(relation: Relation) -> Relation:
    relation = relation.with_inputs(tuple(map(_merge, relation.inputs())))
    if not isinstance(relation, Calc) or not isinstance(relation.input, Calc):
        return relation
    inner = relation.input
    if not _can_be_inlined(inner.projections, [*conjuncts(relation.condition), *relation.projections]):
        return relation
    conditions = conjuncts(inner.condition)
    conditions += [substituted(each, inner.projections) for each in conjuncts(relation.condition)]
    projections = tuple(substituted(each, inner.projections) for each in relation.projections)
    return Calc(relation.fields, inner.input, all_of(conditions), projections)


def _can_be_inlined(columns: tuple[Expr, ...], users: list[Expr]) -> bool:
    """Whether no column is computed twice that differs from call to call, such as RAND."""
    used = [each.index for user in users for each in walk(user) if isinstance(each, InputRef)]
    return all(is_pure(columns[each]) or used.count(each) == 1 for each in set(used))


# ---- conditions move down -------------------------------------------------------------------------------------------


def _push(relation: Relation) -> Relation:
    """Conditions on one side of a join are tested before the rows are kept."""
    if isinstance(relation, Calc) and isinstance(relation.input, Windowed):
        relation = _push_windowed(relation, relation.input)
    if isinstance(relation, Calc) and isinstance(relation.input, Join) and relation.input.kind != "INNER":
        relation = _push_outer(relation, relation.input)
    if isinstance(relation, Calc) and isinstance(relation.input, Join) and relation.input.kind == "INNER":
        join = relation.input
        width = len(join.left.fields)
        left, right, rest = [], [], []
        for each in [*conjuncts(relation.condition), *conjuncts(join.residual)]:
            used = inputs(each)
            if used and max(used) < width and is_pure(each):
                left.append(each)
            elif used and min(used) >= width and is_pure(each):
                right.append(shifted(each, -width))
            else:
                rest.append(each)
        if join.is_crossed:
            join, rest = _keyed(join, rest)
        join = replace(
            join,
            left=_filtered(join.left, left),
            right=_filtered(join.right, right),
            residual=None,
        )
        relation = replace(relation, input=join, condition=all_of(rest))
    if isinstance(relation, Calc) and isinstance(relation.input, Expand):
        relation = _push_below(relation, relation.input)
    if isinstance(relation, Calc) and isinstance(relation.input, LookupJoin):
        relation = push_lookup(relation, relation.input, _filtered, is_pure)
    return relation.with_inputs(tuple(map(_push, relation.inputs())))


def _keyed(join: Join, conditions: list[Expr]) -> tuple[Join, list[Expr]]:
    """A cross join whose equalities of columns are its keys, and the other conditions."""
    width = len(join.left.fields)
    keys, rest = list(join.keys), []
    for each in conditions:
        pair = each.arguments if isinstance(each, Operation) and each.name == "=" else ()
        places = sorted(part.index for part in pair if isinstance(part, InputRef))
        if len(places) == 2 and places[0] < width <= places[1]:
            keys.append((places[0], places[1] - width))
        else:
            rest.append(each)
    return replace(join, keys=tuple(keys)), rest


def _push_windowed(calc: Calc, windowed: Windowed) -> Calc:
    """Conditions that do not read the window are tested before a row becomes one per window."""
    width = len(windowed.input.fields)
    conditions = conjuncts(calc.condition)
    below = [each for each in conditions if is_pure(each) and max(inputs(each), default=width) < width]
    windowed = replace(windowed, input=_filtered(windowed.input, below))
    return replace(calc, input=windowed, condition=all_of([each for each in conditions if each not in below]))


def _push_outer(calc: Calc, join: Join) -> Calc:
    """WHERE is tested before on the outer side, whose rows all come out; ON on the other side, whose rows need it."""
    if join.kind == "FULL":
        return calc
    width = len(join.left.fields)

    def is_left(each: Expr) -> bool | None:
        used = inputs(each)
        if not used or not is_pure(each) or min(used) < width <= max(used):
            return None
        return max(used) < width

    outer_is_left = join.kind == "LEFT"
    below: dict[bool, list[Expr]] = {True: [], False: []}
    rest: dict[str, list[Expr]] = {"WHERE": [], "ON": []}
    for place, each in [("WHERE", e) for e in conjuncts(calc.condition)] + [
        ("ON", e) for e in conjuncts(join.residual)
    ]:
        side = is_left(each)
        if side is not None and side == (outer_is_left if place == "WHERE" else not outer_is_left):
            below[side].append(each if side else shifted(each, -width))
        else:
            rest[place].append(each)
    join = replace(
        join,
        left=_filtered(join.left, below[True]),
        right=_filtered(join.right, below[False]),
        residual=all_of(rest["ON"]),
    )
    return replace(calc, input=join, condition=all_of(rest["WHERE"]))


def _push_below(calc: Calc, expand: Expand) -> Calc:
    """Conditions on the row that becomes several are tested before it does."""
    width = len(expand.input.fields)
    conditions = conjuncts(calc.condition)
    moved = [each for each in conditions if is_pure(each) and max(inputs(each), default=width) < width]
    rest = all_of([each for each in conditions if each not in moved])
    return replace(calc, input=replace(expand, input=_filtered(expand.input, moved)), condition=rest)


def _filtered(relation: Relation, conditions: list[Expr]) -> Relation:
    if not conditions:
        return relation
    columns = tuple(InputRef(each.type, i) for i, each in enumerate(relation.fields))
    return _merge(Calc(relation.fields, relation, all_of(conditions), columns))


# ---- columns that nothing needs -------------------------------------------------------------------------------------


def _prune_root(relation: Relation) -> Relation:
    found, _ = _prune(relation, set(range(len(relation.fields))))
    return found


def _prune(relation: Relation, needed: set[int]) -> tuple[Relation, dict[int, int]]:
    """Returns the relation with the needed columns, and their new positions."""
    match relation:
        case Sink():
            found, _ = _prune(relation.input, set(range(len(relation.input.fields))))
            return replace(relation, input=found), {i: i for i in range(len(relation.fields))}
        case Calc():
            return _prune_calc(relation, needed)
        case Join():
            return _prune_join(relation, needed)
        case Windowed():
            return _prune_windowed(relation, needed)
        case Expand():
            return _prune_expand(relation, needed)
        case LookupJoin():
            return prune_lookup(relation, needed, _prune, _moved)
        case Aggregate():
            return _prune_aggregate(relation), {each: each for each in range(len(relation.fields))}
        case Rank():
            return _prune_rank(relation, needed)
        case Scan():
            kept = sorted(needed)
            fields = tuple(relation.fields[each] for each in kept)
            columns = tuple(relation.columns[each] for each in kept)
            return replace(relation, fields=fields, columns=columns), {old: new for new, old in enumerate(kept)}
        case Union():
            kept = sorted(needed)
            members = tuple(_narrowed(each, kept) for each in relation.members)
            fields = tuple(relation.fields[each] for each in kept)
            return Union(fields, members), {old: new for new, old in enumerate(kept)}
        case SubqueryJoin() | Over() | Analytic() | Sorted() | Repeated():
            return pruned(relation, needed, _prune)
    return relation, {each: each for each in range(len(relation.fields))}


def _narrowed(relation: Relation, kept: list[int]) -> Relation:
    found, places = _prune(relation, set(kept))
    if [places[each] for each in kept] == list(range(len(found.fields))):
        return found
    fields = tuple(relation.fields[each] for each in kept)
    return Calc(fields, found, None, tuple(InputRef(relation.fields[each].type, places[each]) for each in kept))


def _prune_calc(calc: Calc, needed: set[int]) -> tuple[Relation, dict[int, int]]:
    kept = sorted(needed)
    projections = [calc.projections[each] for each in kept]
    used = {i for each in [*projections, *conjuncts(calc.condition)] for i in inputs(each)}
    found, places = _prune(calc.input, used)
    moved = [_moved(each, places) for each in projections]
    condition = None if calc.condition is None else _moved(calc.condition, places)
    fields = tuple(calc.fields[each] for each in kept)
    return Calc(fields, found, condition, tuple(moved)), {old: new for new, old in enumerate(kept)}


def _prune_join(join: Join, needed: set[int]) -> tuple[Relation, dict[int, int]]:
    width = len(join.left.fields)
    needed = needed | {i for each in conjuncts(join.residual) for i in inputs(each)}
    left_needed = {each for each in needed if each < width} | {left for left, _ in join.keys}
    right_needed = {each - width for each in needed if each >= width} | {right for _, right in join.keys}
    if isinstance(join.bound, Interval):
        left_needed.add(join.bound.left_time)
        right_needed.add(join.bound.right_time)
    left, left_places = _prune(join.left, left_needed)
    right, right_places = _prune(join.right, right_needed)
    places = dict(left_places)
    places |= {old + width: new + len(left.fields) for old, new in right_places.items()}
    olds = {new: old for old, new in places.items()}
    found = replace(
        join,
        fields=tuple(join.fields[olds[new]] for new in range(len(left.fields) + len(right.fields))),
        left=left,
        right=right,
        keys=tuple((left_places[one], right_places[other]) for one, other in join.keys),
        residual=None if join.residual is None else _moved(join.residual, places),
        bound=_moved_bound(join.bound, left_places, right_places),
    )
    return found, places


def _moved_bound(
    bound: Interval | SameWindow | None, left: dict[int, int], right: dict[int, int]
) -> Interval | SameWindow | None:
    match bound:
        case Interval():
            return replace(bound, left_time=left[bound.left_time], right_time=right[bound.right_time])
        case SameWindow():
            return replace(bound, left_end=left[bound.left_end], right_end=right[bound.right_end])
    return None


def _prune_windowed(windowed: Windowed, needed: set[int]) -> tuple[Relation, dict[int, int]]:
    width = len(windowed.input.fields)
    window = windowed.window
    used = {each for each in needed if each < width} | {window.time}
    found, places = _prune(windowed.input, used)
    places = places | {width + each: len(found.fields) + each for each in range(3)}
    olds = {new: old for old, new in places.items()}
    fields = tuple(windowed.fields[olds[each]] for each in range(len(found.fields) + 3))
    return Windowed(fields, found, replace(window, time=places[window.time])), places


def _prune_expand(expand: Expand, needed: set[int]) -> tuple[Relation, dict[int, int]]:
    width = len(expand.input.fields)
    own = expand.fields[width:]
    found, places = _prune(expand.input, {each for each in needed if each < width} | inputs(expand.rows))
    start = len(found.fields)
    rows = _moved(expand.rows, places)
    return replace(expand, fields=found.fields + own, input=found, rows=rows), {
        **places,
        **{width + i: start + i for i in range(len(own))},
    }


def _prune_aggregate(aggregate: Aggregate) -> Relation:
    found, _ = _prune(aggregate.input, set(range(len(aggregate.input.fields))))
    return replace(aggregate, input=found)


def _prune_rank(rank: Rank, needed: set[int]) -> tuple[Relation, dict[int, int]]:
    number = len(rank.input.fields)
    below = needed - {number} | set(rank.keys) | {each.column for each in rank.order}
    found, places = _prune(rank.input, below)
    is_numbered = rank.is_numbered and number in needed
    fields = [each._replace(is_time=rank.fields[old].is_time) for old, each in _placed(found, places)]
    pruned = replace(
        rank,
        fields=(*fields, *rank.fields[number:]) if is_numbered else tuple(fields),
        input=found,
        keys=tuple(places[each] for each in rank.keys),
        order=tuple(each._replace(column=places[each.column]) for each in rank.order),
        is_numbered=is_numbered,
    )
    return pruned, {**places, number: len(found.fields)}


def _placed(relation: Relation, places: dict[int, int]) -> list[tuple[int, Field]]:
    """The columns of a relation, each with its position before."""
    before = {new: old for old, new in places.items()}
    return [(before[position], each) for position, each in enumerate(relation.fields)]


def _moved(expression: Expr, places: dict[int, int]) -> Expr:
    return transform(
        expression, lambda each: replace(each, index=places[each.index]) if isinstance(each, InputRef) else each
    )
