"""How an aggregate accumulates, whether built in or of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.casts import single
from rmqio.sql.functions.json import object_of
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.rows import once, pack, pack_group, type_hint
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.user import conversions, functions
from rmqio.sql.user.definition import FunctionError, UserFunction
from rmqio.sql.values import RAISED, ValueFailure, failure_reason, shown

# Exact sums of floats: no order of rows changes them.


def merged_floats(one: list[float], other: list[float]) -> list[float]:
    """Returns few floats whose exact sum is that of all: no order of rows changes a SUM of DOUBLE."""
    partials: list[float] = []
    for value in (*one, *other):
        if value - value != 0:  # NaN, or infinite: nothing else matters
            return [sum(each for each in (*one, *other) if each - each != 0)]
        kept = 0
        for each in partials:
            if abs(value) < abs(each):
                value, each = each, value
            high = value + each
            if high - high != 0:  # too large for one float, though others may make the sum smaller
                return [*one, *other]
            low = each - (high - value)
            if low:
                partials[kept] = low
                kept += 1
            value = high
        partials[kept:] = [value]
    return partials


def exact_sum(partials: Sequence[float]) -> float:
    """Returns the sum, rounded once; infinite if it is too large."""
    if odd := [each for each in partials if each - each != 0]:
        return sum(odd)
    try:
        return math.fsum(partials)
    except OverflowError:
        total = sum(map(Fraction, partials))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How an aggregate accumulates.

    Attributes:
      start: the accumulator of no rows, as Python's source.
      add: source that adds `{value}` to `{acc}`; the value is never None, unless it takes NULL.
      hint: its type, for msgspec.
      merge: makes one of two.
      finish: makes the result.
      constants: what `start` and `add` call, by the names there.
      takes_null: rows whose value is NULL count, too.
      one: an expression, in source, for what `{value}` alone gives, if it can fail; else empty.
      take: source that adds `{one}` to `{acc}`.
    """

    start: str
    add: str
    hint: Any
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    takes_null: bool = False
    one: str = ""
    take: str = ""


# VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP, of exact sums: the order of rows and batches changes no digit.
#
# The accumulator is [count, sum, sum of squares]. Sums of floats are lists of floats whose exact sum is meant; a
# square is two of them. Squares of large and of small floats, which no float could hold, are two more sums, scaled.

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


# FIRST_VALUE and LAST_VALUE: the accumulator is the value with the time of its row, or None.
#
# Rows of a group come in no order, so their times decide. Values of one time are in the order of their queue, if the
# rows have offsets, and then of their bytes: the result does not depend on how rows are cut into batches.


def value_by_time(name: str, argument: SqlType) -> Accumulator:
    """Returns how the function accumulates. The argument is ROW(value, time, offset), or has no offset.

    A value that is NULL does not count.
    """
    sign = "<" if name == "FIRST_VALUE" else ">"
    wins = _is_less if name == "FIRST_VALUE" else _is_greater

    def merge(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return other if one is None else one
        if one[1] == other[1]:
            return other if wins(other, one) else one
        return other if (other[1] < one[1]) == (sign == "<") else one

    kind: Any = tuple[tuple(map(type_hint, argument.elements))]  # type: ignore[misc]
    return Accumulator(
        "None",
        "if {value}[0] is not None and ({acc} is None "
        f"or {{value}}[1] {sign} {{acc}}[1] "
        "or ({value}[1] == {acc}[1] and {wins}({value}, {acc}))): {acc} = {value}",
        kind | None,
        merge,
        lambda acc: None if acc is None else acc[0],
        {"wins": wins},
    )


def _is_less(row: Any, other: Any) -> bool:
    return _order(row) < _order(other)


def _is_greater(row: Any, other: Any) -> bool:
    return _order(row) > _order(other)


def _order(row: Any) -> tuple[Any, bytes]:
    return row[2:], pack(row[0])


# LISTAGG and ARRAY_AGG: their accumulators are the values, in the order in which rows and partial results come.


def list_of_texts(separator: str, *, is_distinct: bool) -> Accumulator:
    """Returns how LISTAGG accumulates."""
    return Accumulator(
        "[]",
        "{acc}.append({value})",
        list[str],
        both,
        _of_some(separator.join, is_distinct),
    )


def array_of_values(argument: SqlType, *, is_distinct: bool) -> Accumulator:
    """Returns how ARRAY_AGG accumulates. NULL is an element, as in Flink."""
    hint: Any = list[type_hint(argument) | None]  # type: ignore[misc]
    return Accumulator("[]", "{acc}.append({value})", hint, both, _of_some(list, is_distinct), takes_null=True)


def both(one: list[Any], other: list[Any]) -> list[Any]:
    """Returns the values of both."""
    return [*one, *other]


def _of_some(finish: Callable[[list[Any]], Any], is_distinct: bool) -> Callable[[list[Any]], Any]:
    def result(found: list[Any]) -> Any:
        if not found:
            return None
        return finish(list(dict.fromkeys(map(once, found))) if is_distinct else found)

    return result


# JSON_ARRAYAGG and JSON_OBJECTAGG: their accumulators are lists of text that is JSON already.


def json_array() -> Accumulator:
    """Returns how JSON_ARRAYAGG accumulates: in the order in which rows and partial results come."""
    return Accumulator("[]", "{acc}.append({value})", list[str], both, lambda items: f"[{','.join(items)}]")


def json_object() -> Accumulator:
    """Returns how JSON_OBJECTAGG accumulates. A key that is there twice is found in the end, however rows are cut."""
    return Accumulator("[]", "{acc}.append({value})", list[tuple[str, str]], both, _object)


def _object(members: list[tuple[str, str]]) -> str:
    found: dict[str, str] = {}
    for key, value in members:
        if key in found:
            raise ValueFailure(
                f"JSON_OBJECTAGG has the key {shown(key)} twice: group by more columns, or keep one row of the key "
                "in a sub-query"
            )
        found[key] = value
    return object_of(found.items())


# Aggregates of the user's own: a class whose accumulators travel by their Python type.
#
# Accumulators are bytes of msgpack between batches and workers, as those of the built-in aggregates are: nothing that
# travels is code. An argument that is NULL leaves the row out, unless its parameter can be None.

_NOTHING: Final = object()
"""Stands for the accumulator of a row that does not count."""


class _Methods:
    """The methods of a class, Flink's or those of Beam's CombineFn, in one shape: each returns the accumulator."""

    def __init__(self, function: UserFunction, kinds: tuple[SqlType, ...]) -> None:
        given, known = functions.loaded(function)
        self._function = function
        try:
            self._instance = given() if isinstance(given, type) else given
        except RAISED as error:
            raise self._failed("", error) from error
        self._is_of_beam = known.is_of_beam
        self._into = functions.converters(function, kinds)
        self._needed = [position for position in range(len(kinds)) if not function.parameter(position).type.is_nullable]
        self._out_of = conversions.out_of(function.result.nullable())

    def _failed(self, method: str, error: BaseException) -> FunctionError:
        where = f" in {method}" if method else ""
        return FunctionError(
            f"function {self._function.name}, an aggregate, has failed{where}: {failure_reason(error)}"
        )

    def _called(self, method: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except RAISED as error:  # the accumulator may be half changed: no row can be left out alone
            raise self._failed(method, error) from error

    def start(self) -> Any:
        return self._called("create_accumulator", self._instance.create_accumulator)

    def add(self, accumulator: Any, row: tuple[Any, ...]) -> Any:
        for position in self._needed:
            if row[position] is None:
                return accumulator
        arguments = [
            each if convert is None or each is None else convert(each)
            for convert, each in zip(self._into, row, strict=True)
        ]
        if self._is_of_beam:
            return self._called("add_input", self._instance.add_input, accumulator, *arguments)
        changed = self._called("accumulate", self._instance.accumulate, accumulator, *arguments)
        return accumulator if changed is None else changed

    def one(self, row: tuple[Any, ...]) -> Any:
        """The accumulator of one row; `_NOTHING` for a row that is left out. Raises `ValueFailure`: the row is bad."""
        if any(row[position] is None for position in self._needed):
            return _NOTHING
        try:
            found = self.add(self.start(), row)
            self._called("add_input" if self._is_of_beam else "accumulate", pack_group, (), (found,))  # it travels
        except FunctionError as error:
            raise ValueFailure(str(error)) from error
        return found

    def take(self, accumulator: Any, one: Any) -> Any:
        return accumulator if one is _NOTHING else self.merge(accumulator, one)

    def merge(self, one: Any, other: Any) -> Any:
        if self._is_of_beam:
            return self._called("merge_accumulators", self._instance.merge_accumulators, [one, other])
        changed = self._called("merge", self._instance.merge, one, [other])
        return one if changed is None else changed

    def finish(self, accumulator: Any) -> Any:
        method = "extract_output" if self._is_of_beam else "get_value"
        found = self._called(method, getattr(self._instance, method), accumulator)
        try:
            return self._out_of(found)
        except RAISED as error:  # it is the row of the group that has no value
            raise ValueFailure(str(self._failed(method, error))) from error


def user_accumulator(call: AggregateCall, argument: SqlType | None) -> Accumulator:
    """Returns how it accumulates. The argument is the ROW of all arguments; None: there are none."""
    assert call.function is not None
    kinds = () if argument is None else argument.elements
    methods = _Methods(call.function, kinds)
    row = "()" if argument is None else "{value}"
    if call.is_distinct and argument is not None:
        return _distinct(methods, argument)
    _, known = functions.loaded(call.function)
    return Accumulator(
        "{user_start}()",
        f"{{acc}} = {{user_add}}({{acc}}, {row})",
        known.accumulator,
        methods.merge,
        methods.finish,
        {"user_start": methods.start, "user_add": methods.add, "user_one": methods.one, "user_take": methods.take},
        takes_null=True,  # it looks for NULL itself
        one=f"{{user_one}}({row})",
        take="{acc} = {user_take}({acc}, {one})",
    )


def _distinct(methods: _Methods, argument: SqlType) -> Accumulator:
    """Equal arguments count once: their set travels, and they are accumulated at the end."""
    inner = type_hint(argument)
    hint: Any = set[inner]  # type: ignore[valid-type]

    def finish(rows: set[Any]) -> Any:
        accumulator = methods.start()
        for each in rows:
            accumulator = methods.add(accumulator, each)
        return methods.finish(accumulator)

    return Accumulator("set()", "{acc}.add({value})", hint, lambda one, other: one | other, finish)
