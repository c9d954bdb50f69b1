"""Calls of functions, also of the user's: their arguments get the types that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn, Protocol

from rmqio.sql import types
from rmqio.sql.analysis import calls
from rmqio.sql.analysis.aggregates import AGGREGATES
from rmqio.sql.analysis.conversions import comparison, conditional, converted, same_type
from rmqio.sql.errors import Refusal, Span, nearest
from rmqio.sql.expressions import Conditional, Constant, Expr, InputRef, Is, Not, Operation
from rmqio.sql.functions import operators, registry
from rmqio.sql.functions.registry import Function
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.syntax import nodes
from rmqio.sql.text import text_of
from rmqio.sql.types import SqlType
from rmqio.sql.user.definition import AGGREGATE, SCALAR, TABLE, UserCall, UserFunction
from rmqio.sql.values import ValueFailure

# Functions of other systems, and what stands for them here.

_FIRST: Final = "the row WHERE rn = 1 of ROW_NUMBER() OVER (PARTITION BY key ORDER BY column)"
_OWN: Final = "an aggregate of your own: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"
_BITS: Final = "a function of your own: there are none of bits"
_FUNCTION: Final = "a function of your own: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"
_GROUPING: Final = ("TUMBLE", "HOP", "SESSION")
AUXILIARY: Final[dict[str, tuple[str, int | None]]] = {
    f"{function}_{suffix}": (function, column)
    for function in _GROUPING
    for suffix, column in (("START", 0), ("END", 1), ("ROWTIME", 2), ("PROCTIME", None))
}
"""Functions of SELECT for a window of GROUP BY, and the window's column that each one is; None: it is PROCTIME()."""
_MAKES: Final = "{0} makes windows, not a value: use it in FROM, as in TABLE({0}(TABLE t, DESCRIPTOR(time), ...))"
_AND: Final = ", or in GROUP BY, where {0}_START and {0}_END are values of SELECT"
WINDOWS: Final = {
    "CUMULATE": _MAKES.format("CUMULATE"),
    **{each: (_MAKES + _AND).format(each) for each in _GROUPING},
}
"""Functions of FROM and of GROUP BY, and what is said of them anywhere else."""
OPERATORS: Final = {
    "ARRAY": "ARRAY[a, b]", "MAP": "MAP[key, value]", "ROW": "ROW(a, b), without quotes", "NEGATE": "-a",
    "LIKE": "a LIKE b",
}  # fmt: skip
"""Constructors and operators that are no functions, though `ARRAY`(a, b) reads as one, and how they are written."""
ELSEWHERE: Final = {
    "CONV": _FUNCTION, "SOUNDEX": _FUNCTION, "METAPHONE": _FUNCTION, "LEVENSHTEIN": _FUNCTION,
    "ANY_VALUE": "MIN or MAX", "SINGLE_VALUE": "MIN or MAX", "FIRST": "MIN or MAX", "LAST": "MIN or MAX",
    "ARG_MAX": _FIRST, "ARG_MIN": _FIRST, "MAX_BY": _FIRST, "MIN_BY": _FIRST,
    "GROUP_CONCAT": "LISTAGG", "STRING_AGG": "LISTAGG", "WM_CONCAT": "LISTAGG", "ARRAY_CONCAT_AGG": "ARRAY_AGG",
    "COLLECT_LIST": "ARRAY_AGG", "COLLECT_SET": "ARRAY_AGG(DISTINCT a)",
    "JSON_AGG": "JSON_ARRAYAGG", "JSON_GROUP_ARRAY": "JSON_ARRAYAGG", "JSON_OBJECT_AGG": "JSON_OBJECTAGG",
    "JSON_GROUP_OBJECT": "JSON_OBJECTAGG", "STDEV": "STDDEV", "VARIANCE_POP": "VAR_POP", "VARIANCE_SAMP": "VAR_SAMP",
    "MEDIAN": _OWN, "PERCENTILE": _OWN, "PERCENTILE_CONT": _OWN, "PERCENTILE_DISC": _OWN, "PERCENTILE_APPROX": _OWN,
    "APPROX_PERCENTILE": _OWN, "COUNT_IF": "COUNT(*) FILTER (WHERE ...)", "COUNTIF": "COUNT(*) FILTER (WHERE ...)",
    "SUM_IF": "SUM(a) FILTER (WHERE ...)", "SUMIF": "SUM(a) FILTER (WHERE ...)",
    "ISNULL": "IFNULL(a, b), or a IS NULL", "NVL2": "CASE WHEN a IS NULL THEN ... END", "CONVERT": "CAST(a AS type)",
    "SAFE_CAST": "TRY_CAST(a AS type)", "TO_NUMBER": "CAST(a AS DECIMAL(p, s))",
    "LEN": "CHAR_LENGTH", "DATALENGTH": "OCTET_LENGTH", "UCASE": "UPPER", "LCASE": "LOWER", "CHARINDEX": "LOCATE",
    "STRPOS": "INSTR(text, part)", "CONTAINS": "POSITION(part IN text) > 0", "SPLIT_PART": "SPLIT_INDEX, from 0",
    "REGEXP_LIKE": "REGEXP(text, pattern)", "FORMAT": "CONCAT, LPAD and CAST", "MID": "SUBSTRING",
    "DATE_TRUNC": "FLOOR(time TO HOUR)", "TRUNC": "TRUNCATE of a number, FLOOR(time TO DAY) of a time",
    "DATE_PART": "EXTRACT(unit FROM time)", "TO_CHAR": "DATE_FORMAT(time, 'yyyy-MM-dd'), or CAST(a AS STRING)",
    "STR_TO_DATE": "TO_TIMESTAMP(text, 'yyyy-MM-dd'), or TO_DATE", "PARSE_DATETIME": "TO_TIMESTAMP(text, format)",
    "DATEADD": "TIMESTAMPADD(unit, number, time)", "DATE_DIFF": "TIMESTAMPDIFF(unit, from, to), or DATEDIFF",
    "MONTHS_BETWEEN": "TIMESTAMPDIFF(MONTH, from, to)", "ADD_MONTHS": "TIMESTAMPADD(MONTH, number, time)",
    "GETDATE": "CURRENT_TIMESTAMP", "SYSDATE": "CURRENT_TIMESTAMP", "CURDATE": "CURRENT_DATE",
    "CURRENT_WATERMARK": "windows, whose rows come when the watermark passes: no runner tells it to a function",
    "GET_JSON_OBJECT": "JSON_VALUE(text, '$.a'), or JSON_QUERY", "JSON_EXTRACT": "JSON_VALUE(text, '$.a')",
    "JSON_EXTRACT_STRING": "JSON_VALUE(text, '$.a')", "JSON_EXTRACT_SCALAR": "JSON_VALUE(text, '$.a')",
    "JSON_TUPLE": "JSON_VALUE(text, '$.a') for each field", "FROM_JSON": "JSON_VALUE(text, '$.a' RETURNING INT)",
    "TO_JSON": "JSON_STRING", "JSON_VALID": "a IS JSON", "IS_JSON": "a IS JSON",
    "EXPLODE": "CROSS JOIN UNNEST(array) AS t (a)", "POSEXPLODE": "UNNEST(array) WITH ORDINALITY AS t (a, n)",
    "SIZE": "CARDINALITY", "ARRAY_LENGTH": "CARDINALITY", "ARRAY_SIZE": "CARDINALITY", "LIST": "ARRAY_AGG",
    "ELEMENT_AT": "array[position], from 1, or map[key]", "TO_ARRAY": "ARRAY[...]",
    "BITAND": _BITS, "BITOR": _BITS, "BITXOR": _BITS, "BITNOT": _BITS,
}  # fmt: skip
"""By name in upper case. None is a function here: a test looks."""


# Constants with which a call can only fail are refused when the statement is planned, and not with every row.


def check_constants(function: Function, arguments: Sequence[Expr], node: nodes.Node) -> None:
    """Raises `Refusal`, at its place, for the first constant that the function can only fail with."""
    for position, check in function.constants.items():
        at = position % len(arguments) if position < 0 else position
        given = arguments[at] if at < len(arguments) else None
        if isinstance(given, Constant) and given.value is not None:
            try:
                check(given.value)
            except ValueFailure as error:
                raise Refusal(str(error), _place(node, at).span) from None


def check_pattern(node: nodes.Like, operands: Sequence[Expr]) -> None:
    """Raises `Refusal` for a pattern, with or without an escape character, that nothing can be compared with."""
    given = [each.value for each in operands if isinstance(each, Constant) and each.value is not None]
    if node.kind not in _PATTERNS or len(given) < len(operands):
        return
    try:
        _PATTERNS[node.kind](*given)
    except ValueFailure as error:
        at = node.pattern if node.escape is None or len(given[1]) == 1 else node.escape
        raise Refusal(str(error), at.span) from None


_PATTERNS: Final[dict[str, Callable[..., object]]] = {
    "LIKE": operators.like_pattern,
    "SIMILAR TO": operators.similar_pattern,
}


def _place(node: nodes.Node, position: int) -> nodes.Node:
    """The argument, if the node is a call that has it where the function does."""
    if isinstance(node, nodes.Call) and position < len(node.arguments):
        return node.arguments[position]
    match node:
        case nodes.Like() if position == 1:
            return node.pattern
        case nodes.Subscript() if position == 1:
            return node.index
    return node


# Calls of the user's functions: arguments are counted, and become the types of the parameters.


def bound(node: nodes.Call, binder: Any) -> Expr:
    """Returns the call in an expression. Raises `Refusal` if it cannot be used there or does not take the arguments."""
    function: UserFunction = node.function
    if node.over is not None:
        _refuse(f"{function.name} is a function of your own, which cannot be used with OVER", node.over.span)
    if function.kind == TABLE:
        _refuse(
            f"{function.name} is a table function, which is used in FROM: FROM t, LATERAL TABLE({function.name}(...))",
            node.span,
        )
    if function.kind == AGGREGATE:
        if binder.aggregate is None:
            place = binder.place or "here"
            _refuse(f"{function.name} is an aggregate function, which cannot be used {place}", node.span)
        found: Expr = binder.aggregate(node)
        return found
    arguments = _arguments(node, binder)
    kind = function.result.nullable(function.result.is_nullable or _can_be_skipped(function, arguments))
    return UserCall(kind, function, arguments, _shown(function, arguments, binder))


def rows(node: nodes.Call, binder: Any) -> UserCall:
    """Returns the call of a table function in FROM. Raises `Refusal`."""
    function: UserFunction = node.function
    if function.kind != TABLE:
        what = "a scalar function" if function.kind == SCALAR else "an aggregate function"
        _refuse(
            f"{function.name} is {what}, but FROM takes a table function, with the hint Iterator[...] or the "
            "decorator @udtf",
            node.span,
        )
    arguments = _arguments(node, binder)
    kind = types.array_of(function.result, _can_be_skipped(function, arguments))
    return UserCall(kind, function, arguments, _shown(function, arguments, binder))


def aggregate(
    node: nodes.Call, binder: Any, check: Callable[[Expr, Span], None]
) -> tuple[AggregateCall, Expr | None, Expr | None]:
    """Returns the call of an aggregate function with its argument, the ROW of all, and its condition."""
    function: UserFunction = node.function
    condition = None if node.filter is None else replace(binder, place="in FILTER").condition(node.filter)
    if node.is_star:
        _refuse(f"{function.name}(*) has no meaning: it is {function.usage()}", node.span)
    is_distinct = node.quantifier == "DISTINCT"
    arguments = _arguments(node, replace(binder, place="in another one"))
    for each, at in zip(arguments, node.arguments, strict=True):
        check(each, at.span)
        if is_distinct and not types.is_key(each.type):
            _refuse(f"{function.name}(DISTINCT ...) cannot be {each.type.text}: use JSON_STRING of it", at.span)
    call = AggregateCall(
        function.name, function.result.nullable(), is_distinct=is_distinct and bool(arguments), function=function
    )
    if not arguments:
        return call, None, condition
    names = tuple(f"EXPR${i}" for i in range(len(arguments)))
    row = SqlType("ROW", False, elements=tuple(each.type for each in arguments), names=names)
    return call, Operation(row, "ROW", arguments), condition


def _arguments(node: nodes.Call, binder: Any) -> tuple[Expr, ...]:
    function: UserFunction = node.function
    if function.kind != AGGREGATE and (node.filter is not None or node.quantifier is not None or node.is_star):
        _refuse(f"DISTINCT, FILTER and * belong to aggregate functions, but {function.name} is not one", node.span)
    count = len(node.arguments)
    if count < function.required or (count > len(function.parameters) and not function.is_variadic):
        _refuse(f"{function.name} does not take {count} arguments; it is {function.usage()}", node.span)
    found = []
    for position, each in enumerate(node.arguments):
        given = binder.bind(each)
        wanted = function.parameter(position).type
        try:
            found.append(converted(given, wanted.nullable(given.type.is_nullable), each))
        except Refusal as refusal:
            if refusal.message.endswith("is needed: use CAST"):
                refusal = Refusal(
                    f"argument {position + 1} of {function.usage()} must be {wanted.text}, not {given.type.text}: "
                    "use CAST",
                    each.span,
                )
            raise refusal from None
    return tuple(found)


def _can_be_skipped(function: UserFunction, arguments: tuple[Expr, ...]) -> bool:
    """Whether an argument can be NULL with which the function is not called: the result is NULL then."""
    return any(
        each.type.is_nullable and not function.parameter(position).type.is_nullable
        for position, each in enumerate(arguments)
    )


def _shown(function: UserFunction, arguments: tuple[Expr, ...], binder: Any) -> str:
    """The call with the names of columns, for messages about a row."""
    names = {each.expression.index: each.name for each in binder.scope.columns if isinstance(each.expression, InputRef)}
    try:
        listed = [names.get(position, "?") for position in range(max(names, default=-1) + 1)]
        return f"{function.name}({', '.join(text_of(each, listed) for each in arguments)})"[:200]
    except IndexError:  # over groups the columns have other places
        return f"{function.name}(...)"


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)


class Binder(Protocol):
    """Binds expressions to columns."""

    def bind(self, node: nodes.Expression) -> Expr:
        """Returns the expression. Raises `Refusal` if it is not valid."""

    def condition(self, node: nodes.Expression) -> Expr:
        """Returns a condition: BOOLEAN. Raises `Refusal` for another type."""


_OF_OVER: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD")


def require_function(name: str, node: nodes.Node) -> None:
    """Raises `Refusal` if there is no such function: with what stands for it here, or the nearest name."""
    functions = registry.load()
    if name in functions and name not in OPERATORS:
        return
    if name in AUXILIARY:
        raise Refusal(f"{name} needs GROUP BY {AUXILIARY[name][0]}(...)", node.span)
    if name in WINDOWS:
        raise Refusal(WINDOWS[name], node.span)
    if (instead := ELSEWHERE.get(name) or OPERATORS.get(name)) is not None:
        raise Refusal(f"there is no function {name}: use {instead}", node.span)
    known = [each for each in functions if each.isidentifier() and each not in OPERATORS] + sorted(AGGREGATES)
    known += node.known if isinstance(node, nodes.Call) else ()
    raise Refusal(f"there is no function {name}{nearest(name, known)}", node.span)


def call_of(name: str, arguments: list[Expr], node: nodes.Node, given: Sequence[Expr] | None = None) -> Expr:
    """Returns the call of a function with converted arguments. Raises `Refusal` if it does not take them.

    `given`: the arguments as they are written, for the error, if these are others.
    """
    function = registry.load()[name]
    try:
        wanted, result = registry.match(function, [each.type for each in arguments])
    except registry.WrongArguments as error:
        kinds = ", ".join(each.type.text for each in given or arguments) or "nothing"
        raise Refusal(f"{name} does not take ({kinds}); it is {error}", node.span) from None
    check_constants(function, arguments, node)
    return Operation(result, name, tuple(map(converted, arguments, wanted, [node] * len(wanted))))


def _coalesce(node: nodes.Call, binder: Binder) -> Expr:
    items = _some(node, binder)
    items = same_type(items, list(node.arguments), node.name.text.upper())
    conditions: list[Expr] = [_is_not_null(each) for each in items[:-1]]
    found = conditional(conditions, items)
    return Conditional(found.type.nullable(all(each.type.is_nullable for each in items)), found.children())


def _some(node: nodes.Call, binder: Binder, least: int = 1) -> list[Expr]:
    if len(node.arguments) < least:
        raise Refusal(f"{node.name.text.upper()} takes at least {least} argument{'s' * (least > 1)}", node.span)
    return [binder.bind(each) for each in node.arguments]


def _is_not_null(operand: Expr) -> Expr:
    kind = types.BOOLEAN.nullable(False)
    return Not(kind, Is(kind, operand, None))


def _null_if(node: nodes.Call, binder: Binder) -> Expr:
    _exactly(node, 2)
    first, second = (binder.bind(each) for each in node.arguments)
    return conditional([comparison("=", first, second, node)], [Constant(first.type.nullable(), None), first])


def _if(node: nodes.Call, binder: Binder) -> Expr:
    _exactly(node, 3)
    condition = binder.condition(node.arguments[0])
    results = same_type([binder.bind(each) for each in node.arguments[1:]], list(node.arguments[1:]), "IF")
    return conditional([condition], results)


def _exactly(node: nodes.Call, count: int) -> None:
    if len(node.arguments) != count:
        name = node.name.text.upper()
        raise Refusal(f"{name} takes {count} arguments, not {len(node.arguments)}", node.span)


def _extremum(node: nodes.Call, binder: Binder) -> Expr:
    name = node.name.text.upper()
    items = same_type(_some(node, binder), list(node.arguments), name)
    kind = items[0].type.nullable(types.any_nullable(each.type for each in items))
    if kind.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{kind.text} has no order: {name} cannot compare it", node.span)
    return Operation(kind, f"{name} OF {'FLOATS' if kind.kind in types.APPROXIMATE else 'ALL'}", tuple(items))


def _modulo(node: nodes.Call, binder: Binder) -> Expr:
    _exactly(node, 2)
    left, right = node.arguments
    return binder.bind(nodes.Binary("%", left, right, span=node.span))


def _substring(node: nodes.Call, binder: Binder) -> Expr:
    arguments = list(node.arguments)
    if len(arguments) == 1 and isinstance(arguments[0], nodes.FromFor):
        given = arguments[0]
        arguments = [given.operand, given.start, *([given.length] if given.length else [])]
    return call_of(node.name.text.upper(), [binder.bind(each) for each in arguments], node)


def _overlay(node: nodes.Call, binder: Binder) -> Expr:
    arguments = list(node.arguments)
    if len(arguments) == 1 and isinstance(arguments[0], nodes.Placing):
        given = arguments[0]
        arguments = [given.operand, given.other, given.start, *([given.length] if given.length else [])]
    return call_of("OVERLAY", [binder.bind(each) for each in arguments], node)


def _trim(node: nodes.Call, binder: Binder) -> Expr:
    given = node.arguments[0] if node.arguments else None
    if isinstance(given, nodes.FromFor) and given.length is None:
        given = nodes.Trim("BOTH", given.operand, given.start, span=given.span)
    if not isinstance(given, nodes.Trim):
        return call_of("TRIM", [binder.bind(each) for each in node.arguments], node)
    name = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}[given.side]
    operands = [given.operand, *([given.characters] if given.characters else [])]
    return call_of(name, [binder.bind(each) for each in operands], node)


def _grouping(node: nodes.Call, binder: Binder) -> Expr:
    raise Refusal(f"{node.name.text.upper()} can be used only in SELECT and HAVING of a query with GROUP BY", node.span)


_Special = Callable[[nodes.Call, Binder], Expr]


def _with_call_of(special: calls.Special) -> _Special:
    return lambda node, binder: special(node, binder, call_of)


SPECIAL: Final[dict[str, _Special]] = {
    "COALESCE": _coalesce, "IFNULL": _coalesce, "NVL": _coalesce, "NULLIF": _null_if, "IF": _if,
    "GREATEST": _extremum, "LEAST": _extremum, "MOD": _modulo, "SUBSTRING": _substring, "SUBSTR": _substring,
    "TRIM": _trim, "OVERLAY": _overlay, "GROUPING": _grouping, "GROUPING_ID": _grouping,
    **calls.TIME_CALLS,
    **{name: _with_call_of(each) for name, each in (calls.SPECIAL | calls.JSON_CALLS).items()},
}  # fmt: skip


def function_names() -> frozenset[str]:
    """Returns the names of all functions, of aggregates and of those that need OVER too."""
    known = {*registry.load(), *SPECIAL, *AGGREGATES, *_OF_OVER} - {"COLLECT"}  # which is known, to be refused
    return frozenset(each for each in known - set(OPERATORS) if each.isidentifier())
