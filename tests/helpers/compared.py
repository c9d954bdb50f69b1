"""What a condition that does not hold compares, in words: `len(sent) is 2: ['a', 'b']`."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

_MOST: Final = 300
"""Characters of a value."""
_NAMED: Final = 10
"""Elements that one side of a comparison has, and the other one does not, or not so often."""


def compared(condition: Callable[..., object]) -> str:
    """Returns the values that a lambda compares, or that it wants to be false; "" if it does neither, or is none.

    It computes them anew. Of two collections, it names what one of them has, and the other one not, or not so often.
    """
    if (body := _body(condition)) is None:
        return ""
    names = {**condition.__globals__, **inspect.getclosurevars(condition).nonlocals}
    names |= {name: each.default for name, each in inspect.signature(condition).parameters.items()}
    texts: list[str] = []
    for part in comparisons(body):
        with contextlib.suppress(Exception):  # it is not asked for where a part before it is false
            texts += _texts(part, names)
    return ", ".join(texts)


def _body(condition: Callable[..., object]) -> ast.expr | None:
    """Returns what a lambda returns: the smallest one in its file that has all of its places."""
    code = getattr(condition, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return None
    places = [place for place in code.co_positions() if None not in place and place[3]]
    begin = min((line, column) for line, _, column, _ in places)
    end = max((line, column) for _, line, _, column in places)
    found = [
        each.body
        for each in ast.walk(ast.parse("".join(linecache.getlines(code.co_filename))))
        if isinstance(each, ast.Lambda) and _begin(each.body) <= begin and end <= _end(each.body)
    ]
    return max(found, key=_begin, default=None)


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def comparisons(condition: ast.expr) -> Iterator[ast.expr]:
    """Yields comparisons, and what should be false."""
    match condition:
        case ast.BoolOp(values=values):
            for each in values:
                yield from comparisons(each)
        case ast.UnaryOp(ast.Not(), operand):
            yield from [*comparisons(operand)] or [operand]
        case ast.Call(ast.Name("all" | "any" | "bool"), [only]):
            yield from comparisons(only)
        case ast.GeneratorExp(ast.Compare(left, _, others), generators):
            yield ast.ListComp(ast.Tuple([left, *others], ast.Load()), generators)
        case ast.Compare():
            yield condition


def _texts(part: ast.expr, names: dict[str, Any]) -> Iterator[str]:
    sides = [part.left, *part.comparators] if isinstance(part, ast.Compare) else [part]
    values = []
    for side in sides:
        counted = side.args[0] if isinstance(side, ast.Call) and ast.unparse(side.func) == "len" else None
        expression = ast.Expression(counted or side)
        value = eval(compile(ast.fix_missing_locations(expression), "<condition>", "eval"), names)
        if not isinstance(side, ast.Constant):
            yield f"{ast.unparse(side)} is {f'{len(value)}: ' if counted else ''}{value!r}"[:_MOST]
        values += [] if counted or isinstance(value, str | bytes) or not isinstance(value, Collection) else [value]
    if (
        len(sides) == len(values) == 2
        and isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Eq | ast.GtE | ast.LtE)
    ):
        for name, some, others in (("first", *values), ("second", *reversed(values))):
            if only := [*islice(_only(_elements(some), _elements(others)), _NAMED)]:
                yield f"only the {name} has {only!r}"[:_MOST]


def _only(some: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    """Yields what is more often in the first ones, such as a copy."""
    left = Counter(map(_hashable, others))
    for each in some:
        key = _hashable(each)
        if left[key] <= 0:
            yield each
        left[key] -= 1


def _hashable(value: Any) -> Hashable:
    """Returns the same for equal values, and else not. To compare each with each takes minutes if much is missing."""
    match value:
        case list():
            return list, *map(_hashable, value)
        case tuple():
            return tuple(map(_hashable, value))
        case set():
            return frozenset(value)
        case Mapping():
            return dict, frozenset((key, _hashable(each)) for key, each in value.items())
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[no-any-return]


def _elements(of: Collection[Any]) -> Collection[Any]:
    return of.items() if isinstance(of, Mapping) else of
