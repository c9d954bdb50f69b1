"""Fields of JSON have no types, and SQL's columns do: each use of a field becomes a column of the type that it needs.

A field is a number where a number is needed: a number of JSON, or a text that spells one. It is text where text is
needed: a number and a boolean are as JSON writes them. A field that is not what is needed is NULL.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqio.sql.conditions import SqlType, nodes, type_of, types
from rmqio.sql.errors import Refusal

NUMBER: Final = "n"
TEXT: Final = "s"
BOOLEAN: Final = "b"
ANY: Final = "a"
"""True if the field is there and is not null, else NULL."""
TRUTHS: Final = ("TRUE", "FALSE", "UNKNOWN")
"""What `IS` asks of a condition; it asks NULL and JSON of a value."""
TYPES: Final = {
    NUMBER: SqlType("DOUBLE"), TEXT: SqlType("VARCHAR"), BOOLEAN: types.BOOLEAN.nullable(),
    ANY: types.BOOLEAN.nullable(),
}  # fmt: skip
_WRITTEN_AS_TEXT: Final = frozenset({"DATE", "TIME", "BINARY", "VARBINARY", *types.TIMESTAMPS})
"""Types whose values are texts in JSON."""
_TRIED: Final = (TEXT, NUMBER, BOOLEAN)
_MOST_TRIED: Final = 4
"""Fields of one call whose types are found by trying."""
_Make = Callable[[tuple[nodes.Expression, ...]], nodes.Expression]
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


def path_of(node: nodes.Expression) -> str | None:
    """Returns the path of a field: `a`, `a.b`, `` `a.b` ``, a['b']; None: it is another expression."""
    names: list[str] = []
    while True:
        if isinstance(node, nodes.Column):
            return ".".join([node.name.text, *reversed(names)])
        if isinstance(node, nodes.Member):
            names.append(node.name.text)
            node = node.base
        elif isinstance(node, nodes.Subscript) and isinstance(node.index, nodes.Literal):
            if node.index.kind != "string":
                return None
            names.append(str(node.index.value))
            node = node.base
        else:
            return None


@dataclass
class Typing:
    """Rewrites expressions. `columns`: those that it made, (path, one of the kinds above) by name."""

    columns: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, SqlType]:
        """The types of the columns."""
        return {name: TYPES[kind] for name, (_, kind) in self.columns.items()}

    def condition(self, node: nodes.Expression) -> nodes.Expression:
        """Returns a condition over columns. Raises `Refusal`."""
        return self.used(node, BOOLEAN)

    def used(self, node: nodes.Expression, kind: str) -> nodes.Expression:
        """Returns an expression where a kind is needed: a field becomes the column of it."""
        path = path_of(node)
        return _rewritten(node, self) if path is None else self.column(path, kind, node)

    def column(self, path: str, kind: str, node: nodes.Node) -> nodes.Expression:
        """Returns the column of a field."""
        known = next((name for name, each in self.columns.items() if each == (path, kind)), None)
        name = known or f"{kind}{len(self.columns)}"
        self.columns[name] = (path, kind)
        return nodes.Column(nodes.Name(name, span=node.span), span=node.span)

    def kind_of(self, node: nodes.Expression) -> str:
        """Returns the kind that a rewritten expression has; the empty text: another type."""
        found = type_of(node, self.types).kind
        if found in types.NUMERIC:
            return NUMBER
        return {"VARCHAR": TEXT, "BOOLEAN": BOOLEAN, "NULL": TEXT}.get(found, "")

    def coerced(self, node: nodes.Expression, other: nodes.Expression) -> nodes.Expression:
        """Returns a field as a value of the type that it is compared with. Raises `Refusal`.

        `other`: the rewritten expression on the other side.
        """
        if kind := self.kind_of(other):
            return self.used(node, kind)
        found = type_of(other, self.types)
        if found.kind not in _WRITTEN_AS_TEXT:
            raise Refusal(f"a field is a text, a number, a boolean or a time, and no {found.text}", other.span)
        name = _type_name(nodes.TypeName(found.text, span=node.span))
        return nodes.Cast(self.used(node, TEXT), name, True, span=node.span)

    def tried(self, node: nodes.Expression, arguments: Sequence[nodes.Expression], make: _Make) -> nodes.Expression:
        """Returns a call whose arguments take the first kinds that it accepts: text before numbers before booleans."""
        open_places = [i for i, each in enumerate(arguments) if path_of(each) is not None]
        if len(open_places) > _MOST_TRIED:
            raise Refusal(f"too many fields without a type in one call: use CAST in all but {_MOST_TRIED}", node.span)
        done = [each if i in open_places else _rewritten(each, self) for i, each in enumerate(arguments)]
        first: Refusal | None = None
        for kinds in itertools.product(_TRIED, repeat=len(open_places)):
            before = dict(self.columns)
            for place, kind in zip(open_places, kinds, strict=True):
                done[place] = self.used(arguments[place], kind)
            made = make(tuple(done))
            try:
                type_of(made, self.types)
            except Refusal as refusal:
                self.columns = before
                first = first or refusal
            else:
                return made
        assert first is not None
        raise first


@functools.singledispatch
def _rewritten(node: nodes.Expression, typing: Typing) -> nodes.Expression:
    return node  # literals; what cannot be used here is refused when it is bound


@_rewritten.register
def _unary(node: nodes.Unary, typing: Typing) -> nodes.Expression:
    return replace(node, operand=typing.used(node.operand, BOOLEAN if node.operator == "NOT" else NUMBER))


@_rewritten.register
def _binary(node: nodes.Binary, typing: Typing) -> nodes.Expression:
    if node.operator in _COMPARISONS:
        return compared(node.operator, node.left, node.right, node, typing)
    kind = BOOLEAN if node.operator in ("AND", "OR") else TEXT if node.operator == "||" else NUMBER
    return replace(node, left=typing.used(node.left, kind), right=typing.used(node.right, kind))


def compared(
    operator: str, left: nodes.Expression, right: nodes.Expression, at: nodes.Node, typing: Typing
) -> nodes.Expression:
    """Returns a comparison: a field as what it is compared with; two fields as numbers, else as texts.

    It is unknown if a side is NULL, and false if a value is there that cannot be compared.
    """
    paths = path_of(left), path_of(right)

    def binary(one: nodes.Expression, other: nodes.Expression) -> nodes.Expression:
        return nodes.Binary(operator, one, other, span=at.span)

    if None not in paths:
        both = [binary(typing.used(left, kind), typing.used(right, kind)) for kind in (NUMBER, TEXT)]
        return _otherwise_false(both, [left, right], operator, at, typing)
    if operator in ("=", "<>") and (pairs := _pairs(left, right)):
        found = _all([compared("=", *pair, at, typing) for pair in pairs], at)
        return found if operator == "=" else nodes.Unary("NOT", found, span=at.span)
    if paths == (None, None):
        return binary(_rewritten(left, typing), _rewritten(right, typing))
    open_side, other = (left, _rewritten(right, typing)) if paths[0] is not None else (right, _rewritten(left, typing))
    column = typing.coerced(open_side, other)
    found = binary(column, other) if paths[0] is not None else binary(other, column)
    return _otherwise_false([found], [open_side, other], operator, at, typing)


def _type_name(name: nodes.TypeName) -> nodes.TypeName:
    base, _, rest = name.name.partition("(")
    return replace(name, name=base, parameters=(int(rest.rstrip(")")),)) if rest else name


def _otherwise_false(
    found: list[nodes.Expression], sides: list[nodes.Expression], operator: str, at: nodes.Node, typing: Typing
) -> nodes.Expression:
    tests: list[nodes.Expression] = []
    for each in sides:
        path = path_of(each)
        operand = each if path is None or path in typing.columns else typing.column(path, ANY, at)
        tests.append(nodes.IsTest(operand, "NULL", True, span=at.span))
    condition = _all(tests, at)
    value = nodes.Literal("boolean", operator == "<>", span=at.span)
    otherwise = nodes.Case(None, ((condition, value),), None, span=at.span)
    return nodes.Call(nodes.Name("COALESCE", span=at.span), (*found, otherwise), span=at.span)


@_rewritten.register
def _is_test(node: nodes.IsTest, typing: Typing) -> nodes.Expression:
    kind = BOOLEAN if node.what in TRUTHS else ANY if node.what == "NULL" else TEXT
    return replace(node, operand=typing.used(node.operand, kind))


@_rewritten.register
def _distinct_from(node: nodes.DistinctFrom, typing: Typing) -> nodes.Expression:
    left, right = node.left, node.right
    if pairs := _pairs(left, right):
        parts = [_distinct_from(nodes.DistinctFrom(*pair, True, span=node.span), typing) for pair in pairs]
        return _all(parts, node) if node.is_negated else nodes.Unary("NOT", _all(parts, node), span=node.span)
    if path_of(left) is not None and path_of(right) is not None:
        return replace(node, left=typing.used(left, TEXT), right=typing.used(right, TEXT))
    if path_of(left) is not None:
        right = _rewritten(right, typing)
        return replace(node, left=typing.coerced(left, right), right=right)
    left = _rewritten(left, typing)
    return replace(node, left=left, right=right if path_of(right) is None else typing.coerced(right, left))


def _pairs(left: nodes.Expression, right: nodes.Expression) -> list[tuple[nodes.Expression, nodes.Expression]]:
    """Returns what is compared if both sides are rows of one length: `(a, b) = (1, 'x')`."""
    if isinstance(left, nodes.Row) and isinstance(right, nodes.Row) and len(left.items) == len(right.items):
        return list(zip(left.items, right.items, strict=True))
    return []


def _all(parts: Sequence[nodes.Expression], at: nodes.Node) -> nodes.Expression:
    return functools.reduce(lambda one, two: nodes.Binary("AND", one, two, span=at.span), parts)


@_rewritten.register
def _between(node: nodes.Between, typing: Typing) -> nodes.Expression:
    def within(low: nodes.Expression, high: nodes.Expression) -> nodes.Expression:
        first = compared(">=", node.operand, low, node, typing)
        return nodes.Binary("AND", first, compared("<=", node.operand, high, node, typing), span=node.span)

    found = within(node.low, node.high)
    if node.is_symmetric:
        found = nodes.Binary("OR", found, within(node.high, node.low), span=node.span)
    return nodes.Unary("NOT", found, span=node.span) if node.is_negated else found


@_rewritten.register
def _in_list(node: nodes.InList, typing: Typing) -> nodes.Expression:
    parts = [compared("=", node.operand, each, node, typing) for each in node.items]
    found = functools.reduce(lambda one, two: nodes.Binary("OR", one, two, span=node.span), parts)
    return nodes.Unary("NOT", found, span=node.span) if node.is_negated else found


@_rewritten.register
def _like(node: nodes.Like, typing: Typing) -> nodes.Expression:
    escape = None if node.escape is None else typing.used(node.escape, TEXT)
    return replace(
        node, operand=typing.used(node.operand, TEXT), pattern=typing.used(node.pattern, TEXT), escape=escape
    )


@_rewritten.register
def _cast(node: nodes.Cast, typing: Typing) -> nodes.Expression:
    return replace(node, operand=typing.used(node.operand, TEXT), is_try=True)


@_rewritten.register
def _case(node: nodes.Case, typing: Typing) -> nodes.Expression:
    conditions = [
        typing.used(when, BOOLEAN) if node.operand is None else compared("=", node.operand, when, when, typing)
        for when, _ in node.whens
    ]
    results = [then for _, then in node.whens] + ([] if node.otherwise is None else [node.otherwise])

    def make(arguments: tuple[nodes.Expression, ...]) -> nodes.Expression:
        whens = tuple(zip(conditions, arguments, strict=False))
        otherwise = arguments[-1] if node.otherwise is not None else None
        return replace(node, operand=None, whens=whens, otherwise=otherwise)

    return typing.tried(node, results, make)


@_rewritten.register(nodes.Call)
@_rewritten.register(nodes.Row)
@_rewritten.register(nodes.Array)
@_rewritten.register(nodes.MapOf)
def _of_arguments(node: nodes.Expression, typing: Typing) -> nodes.Expression:
    return typing.tried(node, _arguments(node), lambda given: _with_arguments(node, iter(given)))


_WITHOUT_VALUE: Final = (
    nodes.FromFor, nodes.JsonClauses, nodes.JsonPair, nodes.NamedArgument, nodes.Placing, nodes.ToUnit, nodes.Trim,
    nodes.Unit,
)  # fmt: skip
"""Arguments whose parts have values, and not they themselves: `a FROM 1`, `BOTH 'x' FROM a`, `a TO DAY`."""


def _arguments(node: nodes.Expression) -> list[nodes.Expression]:
    return [each for part in vars(node).values() for each in _values(part)]


def _values(part: Any) -> list[nodes.Expression]:
    if isinstance(part, tuple):
        return [each for one in part for each in _values(one)]
    if isinstance(part, _WITHOUT_VALUE):
        return _arguments(part)
    return [part] if isinstance(part, nodes.Expression) else []


def _with_arguments(node: nodes.Expression, given: Iterator[nodes.Expression]) -> nodes.Expression:
    return replace(node, **{name: _with_values(part, given) for name, part in vars(node).items()})


def _with_values(part: Any, given: Iterator[nodes.Expression]) -> Any:
    if isinstance(part, tuple):
        return tuple(_with_values(each, given) for each in part)
    if isinstance(part, _WITHOUT_VALUE):
        return _with_arguments(part, given)
    return next(given) if isinstance(part, nodes.Expression) else part


@_rewritten.register
def _subscript(node: nodes.Subscript, typing: Typing) -> nodes.Expression:
    raise Refusal("[...] must follow a field, and contain the name of a field in quotes", node.span)
