"""Functions of numbers."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.functions.operators import divide_doubles
from rmqio.sql.functions.registry import define
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

_WIDE: Final = Context(prec=1000)
"""Any DOUBLE with any number of digits that a caller asks for."""


def _same(arguments: Sequence[SqlType]) -> SqlType:
    return arguments[0]


def _guarded(function: Callable[..., float]) -> Callable[..., float]:
    """By IEEE 754: NaN out of the function's domain, and infinite where it is too large."""

    def call(*arguments: float) -> float:
        try:
            return function(*arguments)
        except ValueError:
            return float("-inf") if function in (math.log, math.log10, math.log2) and not arguments[0] else float("nan")
        except OverflowError:
            return float("inf")

    return call


def round_number(number: Any, digits: int = 0) -> Any:
    """Returns the number with so many digits after the point, rounded half up; negative: before the point."""
    return _cut(number, digits, ROUND_HALF_UP)


def truncate_number(number: Any, digits: int = 0) -> Any:
    """Returns the number with so many digits after the point; the others are cut off."""
    return _cut(number, digits, ROUND_DOWN)


def _cut(number: Any, digits: int, rounding: str) -> Any:
    """The number with so many digits. A DECIMAL has no more of them than before, and none that are negative."""
    if isinstance(number, int):
        return number if digits >= 0 else int(_quantized(Decimal(number), digits, rounding))
    if isinstance(number, float):
        if not math.isfinite(number) or digits > 330:
            return number
        return float(_quantized(Decimal(repr(number)), digits, rounding)) + 0.0  # no -0.0
    if digits >= -number.as_tuple().exponent:
        return number
    found = _quantized(number, digits, rounding).quantize(Decimal(1).scaleb(-max(0, digits)), context=_WIDE)
    return found or found.copy_abs()  # no -0


def _quantized(number: Decimal, digits: int, rounding: str) -> Decimal:
    if number.adjusted() + 1 < -digits:  # less than half of what is kept
        return Decimal(0)
    return number.quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=_WIDE)


def _whole(rounding: str, of_float: Callable[[float], int]) -> Callable[[Any], Any]:
    def call(number: Any) -> Any:
        if isinstance(number, float):
            return float(of_float(number)) if math.isfinite(number) else number
        if isinstance(number, int):
            return number
        found = number.to_integral_value(rounding)
        return found or found.copy_abs()  # no -0

    return call


def sign(number: Any) -> Any:
    """Returns -1, 0 or 1, of the number's type; NaN for NaN."""
    if number != number:
        return number
    found = type(number)((number > 0) - (number < 0))
    return found.quantize(number) if isinstance(found, Decimal) else found


def logarithm(base_or_number: float, number: float | None = None) -> float:
    """Returns the natural logarithm, or that of the second number to the base of the first."""
    if number is None:
        return _guarded(math.log)(base_or_number)
    return divide_doubles(_guarded(math.log)(number), _guarded(math.log)(base_or_number))


def binary_logarithm(number: float) -> float:
    """Returns the logarithm to the base 2, computed as Java's users do."""
    return _guarded(math.log)(number) / math.log(2)


def cotangent(number: float) -> float:
    """Returns the cotangent; infinite at 0."""
    return divide_doubles(1.0, _guarded(math.tan)(number))


def power(base: float, exponent: float) -> float:
    """Returns the power as Java does: 1 to an infinite power, or to that of NaN, is NaN there."""
    if math.isnan(exponent) or (math.isinf(exponent) and abs(base) == 1):
        return float("nan")
    try:
        return math.pow(base, exponent)
    except ValueError:  # 0 to a negative power, or a root of a negative number
        return float("inf") if base == 0 else float("nan")
    except OverflowError:
        return float("-inf") if base < 0 and exponent % 2 == 1 else float("inf")


def hyperbolic_sine(number: float) -> float:
    """Returns the hyperbolic sine; infinite where it is too large."""
    try:
        return math.sinh(number)
    except OverflowError:
        return math.copysign(float("inf"), number)


def new_uuid() -> str:
    """Returns a random UUID."""
    return str(uuid.uuid4())


def random_number(seed: int = 0) -> float:
    """Returns a random number of [0, 1). The seed has no effect: workers have no common order of rows."""
    return random.random()


def random_integer(seed_or_bound: int, bound_after_seed: int | None = None) -> int:
    """Returns a random integer of [0, bound). Raises `ValueFailure` if the bound is not positive."""
    return random.randrange(_positive(seed_or_bound if bound_after_seed is None else bound_after_seed))


def _positive(bound: int) -> int:
    if bound <= 0:
        raise ValueFailure(f"the bound of RAND_INTEGER is {bound}; it must be positive")
    return bound


def _whole_type(arguments: Sequence[SqlType]) -> SqlType:
    given = arguments[0]
    return types.decimal(given.precision, 0) if given.kind == "DECIMAL" else given


for _name in ("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "COSH", "TANH", "EXP", "DEGREES", "RADIANS"):
    define(_name, "f -> f", _guarded(getattr(math, _name.lower())))
define("SINH", "f -> f", hyperbolic_sine)
define("COT", "f -> f", cotangent)
define("SQRT", "f -> f", _guarded(math.sqrt))
define("LN", "f -> f", _guarded(math.log))
define("LOG10", "f -> f", _guarded(math.log10))
define("LOG2", "f -> f", binary_logarithm)
define("LOG", "f [f] -> f", logarithm)
define("ATAN2", "f f -> f", math.atan2)
define("POWER", "f f -> f", power)
define("PI", "-> f", inline=repr(math.pi))
define("E", "-> f", inline=repr(math.e))
define("ABS", "n", inline="abs({0})", returns=_same)
define("SIGN", "n", sign, returns=_same)
define("MOD", "i i", None, returns=_same)  # the planner makes % of it
define("CEIL, CEILING", "n", _whole(ROUND_CEILING, math.ceil), returns=_whole_type)
define("FLOOR", "n", _whole(ROUND_FLOOR, math.floor), returns=_whole_type)
define("ROUND", "n [i]", round_number, returns=_same)  # the planner finds the digits of a DECIMAL
define("TRUNCATE", "n [i]", truncate_number, returns=_same)
define("RAND", "[i] -> f", random_number, is_pure=False)
define("RAND_INTEGER", "i [i] -> i", random_integer, is_pure=False, constants={-1: _positive})
define("UUID", "-> s", new_uuid, is_pure=False)
define("BIN", "i -> s", inline="format({0} & 0xFFFFFFFFFFFFFFFF, 'b')")
