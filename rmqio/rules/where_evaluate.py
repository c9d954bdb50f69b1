"""Conditions of SQL that are not atoms: the types that they give to fields of JSON, and their values for an event.

Each comparison is about all members of its lists: it is true if one of their combinations makes it true, false if none
does and one makes it false, else unknown. AND, OR, NOT and IS TRUE are about comparisons. So a condition means the same
whether its parts are atoms or expressions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, NamedTuple

from rmqio.rules.match.atoms import flat, members, number_of, text_of, values_at
from rmqio.sql.conditions import SqlType, compile_condition, deep_trees, nodes, parse_condition, placed, type_of, types
from rmqio.sql.errors import Refusal

# Fields of JSON have no types, and SQL's columns do: each use of a field becomes a column of the type that it needs.
#
# A field is a number where a number is needed: a number of JSON, or a text that spells one. It is text where text is
# needed: a number and a boolean are as JSON writes them. A field that is not what is needed is NULL.

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
def _rewritten_is_test(node: nodes.IsTest, typing: Typing) -> nodes.Expression:
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
