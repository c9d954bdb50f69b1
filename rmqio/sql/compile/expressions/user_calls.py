"""Calls of the user's functions as Python: an import in the worker, and a call for each row."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.types import BITS
from rmqio.sql.user import running, values
from rmqio.sql.user.definition import TABLE, UserCall


def user_call(expression: UserCall, names: Sequence[str], out: Emitter) -> str:
    """Adds the call, whose arguments have these names. Returns the name of its result."""
    function = expression.function
    given, _ = running.loaded(function)
    nulls = [
        name
        for position, (name, each) in enumerate(zip(names, expression.arguments, strict=True))
        if each.type.is_nullable and not function.parameter(position).type.is_nullable
    ]
    result = out.name()
    if nulls:
        out.line(f"{result} = None")
        with out.block(f"if {' and '.join(f'{each} is not None' for each in dict.fromkeys(nulls))}:"):
            _emit(expression, given, names, result, out)
    else:
        _emit(expression, given, names, result, out)
    return out.remember(expression, result) if function.is_deterministic else result


def _emit(expression: UserCall, given: object, names: Sequence[str], result: str, out: Emitter) -> None:
    function = expression.function
    kinds = [each.type for each in expression.arguments]
    codes = []
    for name, kind, convert in zip(names, kinds, running.converters(function, kinds), strict=True):
        code = name if convert is None else f"{out.constant(convert, 'v')}({name})"
        is_tested = convert is not None and kind.is_nullable
        codes.append(f"(None if {name} is None else {code})" if is_tested else code)
    call = f"{out.constant(given, 'u')}({', '.join(codes)})"
    failing = out.constant(running.Failing(expression.shown or f"{function.name}(...)"), "e")
    with out.block("try:"):
        if function.kind == TABLE:
            out.line(f"{result} = {out.constant(running.rows_of(function), 'v')}({call})")
        else:
            out.line(f"{result} = {call}")
            _check(expression, result, out)
    with out.block(f"except {out.constant(running.RAISED, 'e')} as error:"):
        out.line(f"{failing}(error)")


def _check(expression: UserCall, result: str, out: Emitter) -> None:
    """A function that makes SQL's value of the result; Python's own type is usually right as it is."""
    kind = expression.function.result
    convert = f"{result} = {out.constant(values.out_of(kind), 'v')}({result})"
    if kind.kind in BITS:
        limit = 1 << (BITS[kind.kind] - 1)
        out.line(f"if type({result}) is not int or not {-limit} <= {result} < {limit}: {convert}")
    elif values.is_quick(kind):
        out.constants["bytes"] = bytes
        more = f" or not {result}.isascii()" if kind.kind == "VARCHAR" else ""  # half of a surrogate pair is no text
        out.line(f"if type({result}) is not {values.QUICK[kind.kind].__name__}{more}: {convert}")
    else:
        out.line(convert)
