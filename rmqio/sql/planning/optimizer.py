"""Rewrites a plan so that it does less: conditions move to where rows come from, columns that nothing needs go."""

from __future__ import annotations

from dataclasses import replace

from rmqio.sql.analysis.ranks.limits import with_limits, without_limits
from rmqio.sql.compile.expressions.purity import is_pure
from rmqio.sql.expressions import (
    Expr,
    InputRef,
    Operation,
    all_of,
    conjuncts,
    inputs,
    shifted,
    substituted,
    transform,
    walk,
)
from rmqio.sql.planning.expanding import Expand
from rmqio.sql.planning.folding import folded
from rmqio.sql.planning.lookup_rules import prune_lookup, push_lookup
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
from rmqio.sql.planning.pruning import pruned
from rmqio.sql.planning.relations import Analytic, Over, Repeated, Sorted, SubqueryJoin


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
