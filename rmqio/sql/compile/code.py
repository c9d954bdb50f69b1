"""Expressions as Python: statements that leave a value under a name.

NULL is None. An operand that cannot be NULL by its type is not tested for it. AND, OR and CASE compute what they need
only. Equal sub-expressions are computed once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Final

from rmqio.sql import values
from rmqio.sql.casts import caster
from rmqio.sql.compile.emitter import Emitter, is_pure
from rmqio.sql.expressions import (
    Conditional,
    Constant,
    Conversion,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Not,
    NotNull,
    Operation,
)
from rmqio.sql.functions import registry
from rmqio.sql.functions.operators import like_pattern
from rmqio.sql.functions.times import FIRST_INSTANT, LAST_INSTANT, now_us
from rmqio.sql.types import BITS, INTERVALS
from rmqio.sql.user import conversions, functions
from rmqio.sql.user.definition import TABLE, UserCall
from rmqio.sql.values import RAISED, ValueFailure

# Shorter code for what is usual: LIKE with a known pattern, the time of a number, and CAST of digits to an integer.

_DIGITS = {8: 2, 16: 4, 32: 9, 64: 18}
"""Digits of an integer that fits for sure."""


def shortcut(expression: Operation, arguments: list[str], out: Emitter) -> str | None:
    """Returns Python for an operation whose constants allow something shorter; None: there is nothing."""
    if expression.name == "TO_TIMESTAMP_LTZ":
        return _instant(expression, arguments[0], out)
    if expression.name != "LIKE" or not all(isinstance(each, Constant) for each in expression.arguments[1:]):
        return None
    texts = [each.value for each in expression.arguments[1:] if isinstance(each, Constant)]
    if None in texts:
        return None
    pattern, *escape = texts
    text = arguments[0]
    if not escape and "_" not in pattern:
        parts = pattern.split("%")
        match parts:
            case [whole]:
                return f"({text} == {whole!r})"
            case [start, ""]:
                return f"{text}.startswith({start!r})"
            case ["", end]:
                return f"{text}.endswith({end!r})"
            case ["", middle, ""]:
                return f"({middle!r} in {text})"
    matches = out.constant(like_pattern(pattern, *escape).fullmatch, "p")
    return f"({matches}({text}) is not None)"


def _instant(expression: Operation, number: str, out: Emitter) -> str | None:
    """Python for TO_TIMESTAMP_LTZ of a whole number; None: of anything else."""
    given, *precision = expression.arguments
    if given.type.kind not in BITS or len(precision) > 1 or not all(isinstance(each, Constant) for each in precision):
        return None
    micros = {3: 1000, 0: 1_000_000}.get(precision[0].value if precision else 3)  # type: ignore[attr-defined]
    if micros is None:
        return None
    name = out.name("m")
    return f"({name} if {FIRST_INSTANT} <= ({name} := {number} * {micros}) <= {LAST_INSTANT} else None)"


def cast_of_digits(expression: Conversion, operand: str, code: str) -> str:
    """Returns Python for a CAST: digits become an integer at once, and only other text takes the long way."""
    bits = BITS.get(expression.type.kind)
    if bits is None or expression.operand.type.kind != "VARCHAR":
        return code
    test = f"{operand}.isdigit() and {operand}.isascii() and len({operand}) <= {_DIGITS[bits]}"
    return f"(int({operand}) if {test} else {code})"


# Calls of the user's functions as Python: an import in the worker, and a call for each row.


def user_call(expression: UserCall, names: Sequence[str], out: Emitter) -> str:
    """Adds the call, whose arguments have these names. Returns the name of its result."""
    function = expression.function
    given, _ = functions.loaded(function)
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
    for name, kind, convert in zip(names, kinds, functions.converters(function, kinds), strict=True):
        code = name if convert is None else f"{out.constant(convert, 'v')}({name})"
        is_tested = convert is not None and kind.is_nullable
        codes.append(f"(None if {name} is None else {code})" if is_tested else code)
    call = f"{out.constant(given, 'u')}({', '.join(codes)})"
    failing = out.constant(functions.Failing(expression.shown or f"{function.name}(...)"), "e")
    with out.block("try:"):
        if function.kind == TABLE:
            out.line(f"{result} = {out.constant(functions.rows_of_function(function), 'v')}({call})")
        else:
            out.line(f"{result} = {call}")
            _check_result(expression, result, out)
    with out.block(f"except {out.constant(RAISED, 'e')} as error:"):
        out.line(f"{failing}(error)")


def _check_result(expression: UserCall, result: str, out: Emitter) -> None:
    """A function that makes SQL's value of the result; Python's own type is usually right as it is."""
    kind = expression.function.result
    convert = f"{result} = {out.constant(conversions.out_of(kind), 'v')}({result})"
    if kind.kind in BITS:
        limit = 1 << (BITS[kind.kind] - 1)
        out.line(f"if type({result}) is not int or not {-limit} <= {result} < {limit}: {convert}")
    elif conversions.is_quick(kind):
        out.constants["bytes"] = bytes
        more = f" or not {result}.isascii()" if kind.kind == "VARCHAR" else ""  # half of a surrogate pair is no text
        out.line(f"if type({result}) is not {conversions.QUICK[kind.kind].__name__}{more}: {convert}")
    else:
        out.line(convert)


def out_of_range(number: int, kind: str) -> None:
    """Raises `ValueFailure`: what integers do where Flink's would wrap."""
    raise ValueFailure(f"{number} is out of range of {kind}")


def is_null(column: str) -> None:
    """Raises `ValueFailure`: the column of the sink is NOT NULL."""
    raise ValueFailure(f"the column {column} is NOT NULL, but would be NULL")


def out_of_years() -> None:
    """Raises `ValueFailure`: dates are those of the years 1 to 9999."""
    raise ValueFailure("the result is not in the years 1 to 9999")


def value(expression: Expr, out: Emitter) -> str:
    """Adds what computes the expression. Returns its name, or the literal."""
    if isinstance(expression, Constant):
        return _constant(expression, out)
    if (found := out.find(expression)) is not None:
        return found
    if (lazy := out.lazy.get(expression)) is not None:
        with out.block(f"if {lazy} is unset:"):
            out.line(f"{lazy} = {_computed(expression, out)}")
        return out.remember(expression, lazy)
    return _computed(expression, out)


def _computed(expression: Expr, out: Emitter) -> str:
    if out.nulls and isinstance(expression, (Operation, Conversion, UserCall)):
        return _or_null(expression, out)
    with out.computing(expression):
        return _value(expression, out)


def _or_null(expression: Expr, out: Emitter) -> str:
    """Computes an expression that is NULL if it fails."""
    for each in expression.children():  # each of them is NULL by itself, and the blocks are not nested
        value(each, out)
    name = out.name("n")
    with out.block("try:"), out.computing(expression):
        out.line(f"{name} = {_value(expression, out)}")
    with out.block("except (ValueFailure, UnicodeError, ArithmeticError) as error:"):
        out.line(f"{name} = None")
        out.line(f"{out.nulls}.append(failure(error))")
    return _remembered(expression, name, out)


def _constant(expression: Constant, out: Emitter) -> str:
    found = expression.value
    if found is None or isinstance(found, (bool, int)):
        return repr(found)
    if isinstance(found, str) and len(found) < 100:
        return repr(found)
    return out.constant(found)


@functools.singledispatch
def _value(expression: Expr, out: Emitter) -> str:
    raise AssertionError(expression)


@_value.register
def _input(expression: InputRef, out: Emitter) -> str:
    raise AssertionError(f"column {expression.index} is not loaded")


# ---- functions and operators ----------------------------------------------------------------------------------------


@_value.register
def _operation(expression: Operation, out: Emitter) -> str:
    arguments = [value(each, out) for each in expression.arguments]
    code = _code(expression, arguments, out)
    nulls = _nulls(expression, arguments)
    name = out.name()
    checked = _check(expression, name)
    if not nulls:
        out.line(f"{name} = {code}")
        if checked:
            _emit_check(checked, expression, name, out)
    elif checked:
        out.line(f"{name} = None")
        with out.block(f"if {' and '.join(f'{each} is not None' for each in nulls)}:"):
            out.line(f"{name} = {code}")
            _emit_check(checked, expression, name, out)
    else:
        out.line(f"{name} = None if {' or '.join(f'{each} is None' for each in nulls)} else {code}")
    return _remembered(expression, name, out)


def _nulls(expression: Operation, arguments: list[str]) -> list[str]:
    """The arguments that must be tested for NULL."""
    function = registry.load().get(expression.name)
    if expression.name == "ROW" or (function is not None and not function.is_strict):
        return []
    pairs = zip(expression.arguments, arguments, strict=True)
    return list(dict.fromkeys(name for each, name in pairs if each.type.is_nullable and name.isidentifier()))


def _code(expression: Operation, arguments: list[str], out: Emitter) -> str:
    if expression.name.startswith("FIELD "):
        return f"{arguments[0]}[{expression.name[6:]}]"
    if expression.name == "ROW":
        return f"({', '.join(arguments)},)"
    if (short := shortcut(expression, arguments, out)) is not None:
        return short
    function = registry.load()[expression.name]
    if not function.inline:
        return f"{out.constant(function.call, 'f')}({', '.join(arguments)})"
    if function.inline == "[*]":
        return f"[{', '.join(arguments)}]"
    if function.inline == "{*}":
        pairs = zip(arguments[::2], arguments[1::2], strict=True)
        return "{" + ", ".join(f"{key}: {each}" for key, each in pairs) + "}"
    if function.inline.endswith("(*)"):
        return f"{function.inline[:-3]}(({', '.join(arguments)},))"
    if "now_us" in function.inline:
        out.constants["now_us"] = now_us
    return f"({function.inline.format(*arguments)})"


def _check(expression: Operation, name: str) -> str:
    kind = expression.type.kind
    if expression.name.startswith("INTEGER ") and expression.name[-1] in "+-*/" and kind in _BITS:
        return "bits"
    if expression.name in ("NEGATE", "ABS") and kind in _BITS:
        return "bits"
    if expression.name in ("TIME +", "TIME -") and kind in INTERVALS:
        return "bits"
    if kind == "DECIMAL" and expression.name.startswith("DECIMAL "):
        return "digits"
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ") and expression.name in ("TIME +", "TIME -", "TIMESTAMPADD"):
        return "years"
    if kind == "FLOAT" and expression.name.startswith("DOUBLE "):
        return "single"
    return ""


def _emit_check(check: str, expression: Operation, name: str, out: Emitter) -> None:
    kind = expression.type
    if check == "bits":
        limit = 1 << (_BITS[kind.kind] - 1)
        out.constants["out_of_range"] = out_of_range
        out.line(f"if not {-limit} <= {name} < {limit}: out_of_range({name}, {kind.text!r})")
    elif check == "years":
        first, last = (
            (-719_162, 2_932_896) if kind.kind == "DATE" else (-62_135_596_800_000_000, 253_402_300_799_999_999)
        )
        out.constants["out_of_years"] = out_of_years
        out.line(f"if not {first} <= {name} <= {last}: out_of_years()")
    elif check == "digits":
        fitting = out.constant(values.fitting, "f")
        out.line(f"{name} = {fitting}({name}, {kind.precision}, {kind.scale})")
    else:
        from rmqio.sql.casts import single

        out.line(f"{name} = {out.constant(single, 'f')}({name})")


def _remembered(expression: Expr, name: str, out: Emitter) -> str:
    return out.remember(expression, name) if is_pure(expression) else name


@_value.register
def _user_call(expression: UserCall, out: Emitter) -> str:
    return user_call(expression, [value(each, out) for each in expression.arguments], out)


@_value.register
def _not_null(expression: NotNull, out: Emitter) -> str:
    operand = value(expression.operand, out)
    out.constants["is_null"] = is_null
    out.line(f"if {operand} is None: is_null({expression.column!r})")
    return operand


@_value.register
def _conversion(expression: Conversion, out: Emitter) -> str:
    operand = value(expression.operand, out)
    given, wanted = expression.operand.type, expression.type
    if given.kind == wanted.kind == "VARCHAR" and not wanted.precision:  # another type only
        return operand
    convert = caster(given, wanted)
    code = cast_of_digits(expression, operand, f"{out.constant(convert, 'c')}({operand})")
    name = out.name()
    test = f"None if {operand} is None else " if expression.operand.type.is_nullable else ""
    if expression.is_try:
        out.constants["ValueFailure"] = ValueFailure
        with out.block("try:"):
            out.line(f"{name} = {test}{code}")
        with out.block("except ValueFailure:"):
            out.line(f"{name} = None")
    else:
        out.line(f"{name} = {test}{code}")
    return _remembered(expression, name, out)


# ---- three-valued logic ---------------------------------------------------------------------------------------------


@_value.register
def _logical(expression: Logical, out: Emitter) -> str:
    # AND: false as soon as an operand is false, else NULL if one was NULL. OR likewise with true.
    decided = "False" if expression.operator == "AND" else "True"
    name = out.name()
    out.line(f"{name} = {value(expression.operands[0], out)}")
    _more_operands(expression.operands, 1, name, decided, out)
    return _remembered(expression, name, out)


_DEPTH: Final = 15
"""Blocks that are nested before a flag takes over: Python has a limit of 100, counting those around."""
_DEEP: Final = 20
"""Blocks around an expression from which on a flag takes over at once."""
_BITS: Final = {**BITS, "INTERVAL_DAY": 64, "INTERVAL_MONTH": 32}


def _more_operands(operands: tuple[Expr, ...], start: int, name: str, decided: str, out: Emitter) -> None:
    if start == len(operands):
        return
    end = min(len(operands), start + (_DEPTH if out.depth < _DEEP else 1))
    with out.block(f"if {name} is not {decided}:"):
        _next(operands, start, end, name, decided, out)
    _more_operands(operands, end, name, decided, out)


def _next(operands: tuple[Expr, ...], position: int, end: int, name: str, decided: str, out: Emitter) -> None:
    each = operands[position]
    found = value(each, out)
    before_is_nullable = any(one.type.is_nullable for one in operands[:position])
    if not before_is_nullable:
        out.line(f"{name} = {found}")
    elif each.type.is_nullable:
        out.line(f"if {found} is {decided} or ({name} is not None and {found} is None): {name} = {found}")
    else:
        out.line(f"if {found} is {decided}: {name} = {found}")
    if position + 1 < end:
        with out.block(f"if {name} is not {decided}:"):
            _next(operands, position + 1, end, name, decided, out)


@_value.register
def _not(expression: Not, out: Emitter) -> str:
    operand = value(expression.operand, out)
    name = out.name()
    test = f"None if {operand} is None else " if expression.operand.type.is_nullable else ""
    out.line(f"{name} = {test}not {operand}")
    return _remembered(expression, name, out)


@_value.register
def _test(expression: Is, out: Emitter) -> str:
    operand = value(expression.operand, out)
    name = out.name()
    is_constant = not operand.isidentifier()  # a literal other than NULL, TRUE and FALSE
    out.line(f"{name} = {'False' if is_constant else f'{operand} is {expression.value}'}")
    return _remembered(expression, name, out)


@_value.register
def _membership(expression: Membership, out: Emitter) -> str:
    operand = value(expression.operand, out)
    found = [each.value for each in expression.values if each.value is not None]
    has_null = len(found) < len(expression.values)
    found = [each for each in found if each == each]  # a set would find a NaN by its identity
    name = out.name()
    members = out.constant(frozenset(found), "s")
    otherwise = " or None" if has_null else ""
    test = f"None if {operand} is None else " if expression.operand.type.is_nullable else ""
    out.line(f"{name} = {test}({operand} in {members}{otherwise})")
    return _remembered(expression, name, out)


@_value.register
def _conditional(expression: Conditional, out: Emitter) -> str:
    name = out.name()
    parts = expression.parts
    while isinstance(parts[-1], Conditional) and parts[-1].type == expression.type:  # ELSE CASE is one more WHEN
        parts = (*parts[:-1], *parts[-1].parts)
    _branches(parts, name, out)
    return _remembered(expression, name, out)


def _branches(parts: tuple[Expr, ...], name: str, out: Emitter) -> None:
    if len(parts) // 2 > (_DEPTH if out.depth < _DEEP else 1):  # a long CASE: a flag instead of further nesting
        is_open = out.name("o")
        out.line(f"{is_open} = True")
        while len(parts) > 1:
            condition, result, *rest = parts
            with out.block(f"if {is_open}:"):
                with out.block(f"if {value(condition, out)}:"):
                    out.line(f"{name} = {value(result, out)}")
                    out.line(f"{is_open} = False")
            parts = tuple(rest)
        with out.block(f"if {is_open}:"):
            out.line(f"{name} = {value(parts[0], out)}")
        return
    with contextlib.ExitStack() as blocks:
        while len(parts) > 1:
            condition, result, *rest = parts
            with out.block(f"if {value(condition, out)}:"):
                out.line(f"{name} = {value(result, out)}")
            parts = tuple(rest)
            blocks.enter_context(out.block("else:"))
        out.line(f"{name} = {value(parts[0], out)}")


# ---- conditions -----------------------------------------------------------------------------------------------------


def skip_unless(condition: Expr, out: Emitter, skip: str = "continue") -> None:
    """Adds what leaves the row out unless the condition is true."""
    if isinstance(condition, Logical) and condition.operator == "AND":
        for each in condition.operands:
            skip_unless(each, out, skip)
        return
    if isinstance(condition, Operation) and condition.name in ("=", "<>", "<", "<=", ">", ">="):
        left, right = (value(each, out) for each in condition.arguments)
        code = _code(condition, [left, right], out)
        nulls = [f"{each} is None" for each in _nulls(condition, [left, right])]
        out.line(f"if {' or '.join([*nulls, f'not {code}'])}: {skip}")
        return
    found = value(condition, out)
    out.line(f"if not {found}: {skip}")
