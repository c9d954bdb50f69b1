"""Conditions of SQL that are not atoms: they are computed for an event.

Each comparison is about all members of its lists: it is true if one of their combinations makes it true, false if none
does and one makes it false, else unknown. AND, OR, NOT and IS TRUE are about comparisons. So a condition means the same
whether its parts are atoms or expressions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, NamedTuple

from rmqio.rules.field_values import members
from rmqio.rules.plan.values import flat, number_of, text_of, values_at
from rmqio.rules.where_typing import ANY, BOOLEAN, NUMBER, TEXT, TRUTHS, TYPES, Typing, path_of
from rmqio.sql.conditions import SqlType, compile_condition, deep_trees, nodes, parse_condition, placed
from rmqio.sql.errors import Refusal

Event = Mapping[str, Any]
Truth = Callable[[Event], bool | None]
_MOST_ROWS: Final = 1_000
"""Combinations of members, if fields of an expression are lists."""
_DEEPEST: Final = 100
"""Levels of an expression: the time to compile it grows with their square."""
_LARGE: Final = 1 << 53
"""From here on, a DOUBLE has not every integer."""
_WHOLE: Final = SqlType("DECIMAL", precision=38)
_MOST_DIGITS: Final = 1000
NO_CONSTANT: Final = object()


def constant(node: nodes.Expression) -> Any:
    """Returns the value of a literal, None for NULL; `NO_CONSTANT`: it is another expression."""
    if isinstance(node, nodes.Unary) and node.operator == "-":
        value = constant(node.operand)
        return -value if isinstance(value, (int, float)) and not isinstance(value, bool) else NO_CONSTANT
    if not isinstance(node, nodes.Literal) or node.kind not in ("number", "string", "boolean", "null"):
        return NO_CONSTANT
    if node.kind != "number":
        return node.value if node.kind != "null" else None
    text = str(node.value)
    if len(text) > _MOST_DIGITS:  # SQL refuses it, with its place
        return NO_CONSTANT
    number = float(text) if set(text) & set(".eE") else int(text)
    return number if abs(number) != float("inf") else NO_CONSTANT


def chain(node: nodes.Binary) -> list[nodes.Expression]:
    """Returns the operands of a chain of one operator, which is deep on its left."""
    found: list[nodes.Expression] = []
    pending: list[nodes.Expression] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, nodes.Binary) and each.operator == node.operator:
            pending += [each.right, each.left]
        else:
            found.append(each)
    return found


def check(node: nodes.Expression) -> None:
    """Raises `Refusal` for what cannot be computed."""
    _compiled(node)


@functools.lru_cache(maxsize=10_000)
def sql_predicate(text: str) -> Callable[[Event], bool]:
    """Returns the function of a condition: whether SQL says TRUE for an event. Raises `SqlError`, a `LocalError`.

    Up to a thousand combinations of the members of lists are tried. An expression that fails, such as a division by
    zero, is not true.
    """
    node = parse_condition(text)
    try:
        with deep_trees():
            truth = _truth(node)
    except Refusal as refusal:
        raise placed(refusal, text) from None
    return lambda event: truth(event) is True


def _truth(node: nodes.Expression, depth: int = 1) -> Truth:
    if depth > _DEEPEST:  # each level is a call when it is computed
        raise Refusal(f"an expression of SQL has at most {_DEEPEST} levels of AND, OR and NOT", node.span)
    if isinstance(node, nodes.Unary) and node.operator == "NOT":
        return _not(_truth(node.operand, depth + 1))
    if isinstance(node, nodes.Binary) and node.operator in ("AND", "OR"):
        return _all_or_any([_truth(each, depth + 1) for each in chain(node)], is_and=node.operator == "AND")
    if isinstance(node, nodes.Binary) and node.operator == "<>":
        return _not(_leaf(replace(node, operator="=")))
    if isinstance(node, nodes.IsTest):
        return _is_test(node, depth)
    if isinstance(node, (nodes.Between, nodes.InList, nodes.Like)) and node.is_negated:
        return _not(_truth(replace(node, is_negated=False), depth + 1))
    if isinstance(node, nodes.Between) and _is_of_a_field(node):
        bounds = ((">=", node.low), ("<=", node.high))
        parts = [nodes.Binary(operator, node.operand, bound, span=node.span) for operator, bound in bounds]
        return _all_or_any([_leaf(each) for each in parts], is_and=True)
    return _leaf(node)


def _is_of_a_field(node: nodes.Between) -> bool:
    """Whether it is two comparisons of a field, as atoms are."""
    bounds = (constant(node.low), constant(node.high))
    is_number = all(each is None or (isinstance(each, (int, float)) and not isinstance(each, bool)) for each in bounds)
    return is_number and not node.is_symmetric and path_of(node.operand) is not None


def _not(truth: Truth) -> Truth:
    def negated(event: Event) -> bool | None:
        found = truth(event)
        return None if found is None else not found

    return negated


def _all_or_any(parts: list[Truth], *, is_and: bool) -> Truth:
    def joined(event: Event) -> bool | None:
        is_known = True
        for part in parts:
            found = part(event)
            if found is not None and found != is_and:
                return found
            is_known = is_known and found is not None
        return is_and if is_known else None

    return joined


def _is_test(node: nodes.IsTest, depth: int) -> Truth:
    path = path_of(node.operand)
    if node.what in TRUTHS:
        truth, wanted = _truth(node.operand, depth + 1), {"TRUE": True, "FALSE": False}.get(node.what)
        return lambda event: (truth(event) is wanted) != node.is_negated
    if path is None or node.what != "NULL":
        found = _leaf(replace(node, is_negated=False))
        return _not(found) if node.is_negated else found

    def is_null(event: Event) -> bool:
        values = values_at(event, path)
        return (values is None or None in [each for value in values for each in flat(value)]) != node.is_negated

    return is_null


def _leaf(node: nodes.Expression) -> Truth:
    compiled = _compiled(node)

    def truth(event: Event) -> bool | None:
        rows = list(itertools.islice(_rows(compiled, event), _MOST_ROWS))
        is_large = compiled.is_large or any(type(each) is int for row in rows for each in row)
        found = _exact(compiled, rows) if is_large else compiled.evaluate(rows)
        return True if True in found else False if False in found else None

    return truth


def _exact(compiled: _Compiled, rows: list[tuple[Any, ...]]) -> list[bool | None]:
    """Whole numbers as DECIMAL; where that gives nothing, such as 1 / 0, or a number is not whole, as DOUBLE."""
    found = compiled.evaluate([tuple(float(each) if type(each) is int else each for each in row) for row in rows])
    whole = [(at, tuple(map(_decimal, row))) for at, row in enumerate(rows) if all(map(_is_whole, row))]
    for (at, _), exact in zip(whole, compiled.wholes()([row for _, row in whole]), strict=True):
        found[at] = found[at] if exact is None else exact
    return found


def _is_whole(value: Any) -> bool:
    return not isinstance(value, float) or value.is_integer()


def _decimal(value: Any) -> Any:
    return Decimal(int(value)) if type(value) in (int, float) else value


_Rows = list[tuple[Any, ...]]
_Evaluate = Callable[[_Rows], list[bool | None]]


class _Compiled(NamedTuple):
    evaluate: _Evaluate
    wholes: Callable[[], _Evaluate]
    """Compiles the condition over whole numbers."""
    is_large: bool
    """A number that is written needs more digits than a DOUBLE has."""
    paths: tuple[str, ...]
    columns: tuple[tuple[int, str], ...]
    """(the path by its position, the kind) of each column."""


def _compiled(node: nodes.Expression) -> _Compiled:
    is_large = _look(node)
    typing = Typing()
    with deep_trees():
        typed = typing.condition(node)
        evaluate = compile_condition(typed, typing.types)

    @functools.cache
    def wholes() -> _Evaluate:
        kinds = {name: _WHOLE if kind is TYPES[NUMBER] else kind for name, kind in typing.types.items()}
        try:
            with deep_trees():
                return compile_condition(typed, kinds)
        except Refusal:  # a function that takes DOUBLE only
            return lambda rows: [None] * len(rows)

    paths = tuple(dict.fromkeys(path for path, _ in typing.columns.values()))
    columns = tuple((paths.index(path), kind) for path, kind in typing.columns.values())
    return _Compiled(evaluate, wholes, is_large, paths, columns)


def _look(root: nodes.Expression) -> bool:
    """Returns whether a number has too many digits for a DOUBLE. Raises `Refusal` if it takes too long to compile."""
    is_large = False
    todo: list[tuple[Any, int]] = [(root, 1)]
    while todo:
        one, depth = todo.pop()
        if isinstance(one, tuple):
            todo += [(each, depth) for each in one]
        elif isinstance(one, nodes.Node):
            if depth > _DEEPEST:
                raise Refusal(f"an expression has at most {_DEEPEST} levels; AND, OR and NOT do not count", one.span)
            value = constant(one) if isinstance(one, nodes.Literal) else None
            is_large = is_large or (type(value) is int and value > _LARGE)
            todo += [(each, depth + 1) for each in vars(one).values() if isinstance(each, (nodes.Node, tuple))]
    return is_large


def _rows(compiled: _Compiled, event: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    found = [members(event, path) or [None] for path in compiled.paths]
    for values in itertools.product(*found):
        yield tuple(_CONVERTED[kind](values[place]) for place, kind in compiled.columns)


def _number(value: Any) -> float | None:
    number = number_of(value)
    try:
        found = None if number is None else float(number)
        if found is None or isinstance(number, float) or abs(found) < _LARGE:
            return found
        return int(number) if number == int(number) and abs(number) < 10**38 else found  # type: ignore[arg-type]
    except OverflowError:
        return None


def _boolean(value: Any) -> bool | None:
    return {"true": True, "false": False}.get(text_of(value) or "")


_CONVERTED: Final[dict[str, Callable[[Any], Any]]] = {
    NUMBER: _number,
    TEXT: text_of,
    BOOLEAN: _boolean,
    ANY: lambda value: None if value is None else True,
}
