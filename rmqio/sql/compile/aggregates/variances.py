"""VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP, of exact sums: the order of rows and batches changes no digit.

The accumulator is [count, sum, sum of squares]. Sums of floats are lists of floats whose exact sum is meant; a square
is two of them. Squares of large and of small floats, which no float could hold, are two more sums, scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.compile.aggregates.exact_floats import merged_floats
from rmqio.sql.compile.expressions.casts import single
from rmqio.sql.rows import type_hint
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import ValueFailure

_SPLIT: Final = 134_217_729.0
"""2 ** 27 + 1: it cuts the 53 bits of a float into halves whose products are exact."""
_LEAST, _MOST, _DOWN, _UP = (2.0**power for power in (-400, 500, -600, 600))
"""Floats between the first two have exact squares; larger and smaller ones are multiplied by the others before."""
_SCALES: Final = (Fraction(1), Fraction(1 << 1200), Fraction(1, 1 << 1200))
"""By what the sums of squares are to be multiplied."""
_Finish = Callable[[int, Fraction | None, Fraction | None], Any]


def variance(name: str, kind: SqlType, argument: SqlType) -> Accumulator:
    """Returns how the function accumulates."""
    finish = _finish(name, kind)
    if argument.kind in types.APPROXIMATE:
        return Accumulator(
            "[0, [], [], [], []]",
            "{acc}[0] += 1\n{acc}[1].append({value})\n{add_square}({acc}, {value})",
            list[int | list[float]],
            _merged,
            lambda acc: finish(acc[0], _exact(acc[1]), _squares(acc[2:])),
            {"add_square": add_square},
        )
    is_decimal = argument.kind == "DECIMAL"
    return Accumulator(
        "[0, zero, zero]" if is_decimal else "[0, 0, 0]",
        "{acc}[0] += 1\n{acc}[1] += {value}\n{acc}[2] += {value} * {value}",
        tuple[int, Decimal, Decimal] if is_decimal else tuple[int, int | str, int | str],
        lambda a, b: [a[0] + b[0], _plus(a[1], b[1]), _plus(a[2], b[2])],
        lambda acc: finish(acc[0], Fraction(acc[1]), Fraction(acc[2])),
    )


def variance_of_distinct(name: str, kind: SqlType, argument: SqlType) -> Accumulator:
    """Returns how the function accumulates equal values once."""
    finish, hint = _finish(name, kind), type_hint(argument)

    def finished(found: set[Any]) -> Any:
        if not all(map(math.isfinite, found)):
            return finish(len(found), None, None)
        exact = [Fraction(each) for each in found]
        return finish(len(found), sum(exact, Fraction()), sum((each * each for each in exact), Fraction()))

    of_set: Any = set[hint]  # type: ignore[valid-type]
    return Accumulator("set()", "{acc}.add({value})", of_set, lambda one, other: one | other, finished)


def add_square(accumulator: list[Any], number: float) -> None:
    """Adds two floats whose sum is the exact square to the sum that can hold it."""
    at = 2
    if not _LEAST < abs(number) < _MOST and number:
        at, number = (3, number * _DOWN) if abs(number) >= _MOST else (4, number * _UP)
    high = number * number
    cut = _SPLIT * number
    large = cut - (cut - number)
    small = number - large
    accumulator[at] += (high, ((large * large - high) + 2 * large * small) + small * small)


def _squares(sums: Sequence[list[float]]) -> Fraction | None:
    """Their sum; None: it is not finite."""
    total = Fraction()
    for each, scale in zip(sums, _SCALES, strict=False):
        exact = _exact(each)
        if exact is None:
            return None
        total += exact * scale
    return total


def _merged(one: list[Any], other: list[Any]) -> list[Any]:
    empty: list[float] = []  # of states of versions that had no scaled sums
    sums = zip_longest(one[1:], other[1:], fillvalue=empty)
    return [one[0] + other[0], *(merged_floats(*each) for each in sums)]


def _plus(one: Any, other: Any) -> Any:
    """The sum. Integers of more than 64 bits come as text."""
    return values.DECIMALS.add(one, other) if isinstance(one, Decimal) else int(one) + int(other)


def _exact(numbers: list[float]) -> Fraction | None:
    found = merged_floats(numbers, [])
    return sum(map(Fraction, found), Fraction()) if all(map(math.isfinite, found)) else None


def _finish(name: str, kind: SqlType) -> _Finish:
    is_sample, is_deviation = not name.endswith("_POP"), name.startswith("STDDEV")

    def finish(count: int, total: Fraction | None, squares: Fraction | None) -> Any:
        divisor = count - 1 if is_sample else count
        if divisor < 1:
            return None
        if kind.kind in BITS and total is not None and squares is not None:  # cut off at the end only, as in Flink
            whole = math.floor((squares - total * total / count) / divisor)
            whole = math.isqrt(whole) if is_deviation else whole
            if whole >= 1 << (BITS[kind.kind] - 1):
                raise ValueFailure(f"{name} is {whole}, out of range of {kind.text}: CAST the argument to DOUBLE")
            return whole
        if total is None or squares is None:
            return math.nan
        found = max((squares - total * total / count) / divisor, Fraction())
        if kind.kind in types.APPROXIMATE:
            number = _float(found, is_deviation)
            return single(number) if kind.kind == "FLOAT" else number
        exact = values.DECIMALS.divide(Decimal(found.numerator), Decimal(found.denominator))
        exact = values.DECIMALS.sqrt(exact) if is_deviation else exact
        return values.fitting(exact, kind.precision, kind.scale)

    return finish


def _float(number: Fraction, is_deviation: bool) -> float:
    """The number, or its root, which can be a float where the number is too large or too small for one."""
    half = (number.numerator.bit_length() - number.denominator.bit_length()) // 2 if is_deviation else 0
    try:
        found = float(number / Fraction(4) ** half)
        return math.ldexp(math.sqrt(found), half) if is_deviation else found
    except OverflowError:
        return math.inf
