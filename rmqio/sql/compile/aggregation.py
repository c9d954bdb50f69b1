"""Aggregates: partial results of a batch in the fragment, and their merging after the shuffle.

An accumulator is a plain value, so that it travels as bytes: a count; a sum or None; a list of floats whose exact sum
is meant; the least value or None; for DISTINCT the set of values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from typing import Any

from rmqio.sql import types, values
from rmqio.sql.casts import single
from rmqio.sql.compile.accumulators import (
    Accumulator,
    array_of_values,
    exact_sum,
    json_array,
    json_object,
    list_of_texts,
    merged_floats,
    user_accumulator,
    value_by_time,
    variance,
    variance_of_distinct,
)
from rmqio.sql.compile.description import ToGroups
from rmqio.sql.compile.emitter import Emitter
from rmqio.sql.planning.plan import BY_TIME, VARIANCES, AggregateCall, Window
from rmqio.sql.rows import has_floats, once, type_hint
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.user.definition import FunctionError
from rmqio.sql.values import ValueFailure, last_instant_in, local_in

# A row becomes one row per window that it is in, as code.


def windowed(window: Window, columns: list[str], is_nullable: bool, out: Emitter, loops: ExitStack) -> list[str]:
    """Writes code that goes through the windows of a row. Returns the columns with start, end and time after them.

    Args:
      columns: names of the row's values.
      is_nullable: whether the time can be NULL.
      loops: closes the loop, if there is one, when all that happens in it is written.
    """
    time = columns[window.time]
    if is_nullable:
        out.constants["no_time"] = no_time
        out.line(f"if {time} is None: no_time()")
    clock = local_time(window, time, out)
    start, end, last = out.name("ws"), out.name("we"), out.name("wt")
    size, slide = window.size_us, window.slide_us
    piece = out.name("p")  # the piece of time that the row is in: windows begin and end where pieces do
    out.line(f"{piece} = {clock} - ({clock} - {window.offset_us}) % {slide}")
    match window.kind:
        case "HOP":
            loops.enter_context(out.block(f"for {start} in range({piece} - {size - slide}, {piece} + 1, {slide}):"))
            out.line(f"{end} = {start} + {size}")
        case "CUMULATE":
            out.line(f"{start} = {clock} - ({clock} - {window.offset_us}) % {size}")
            loops.enter_context(out.block(f"for {end} in range({piece} + {slide}, {start} + {size} + 1, {slide}):"))
        case _:
            out.line(f"{start}, {end} = {piece}, {piece} + {size}")
    if window.local_zone is None:
        out.line(f"{last} = {end} - 1000")
    else:
        out.constants["last_instant_in"] = last_instant_in
        out.line(f"{last} = last_instant_in({window.local_zone!r}, {end})")
    return [*columns, start, end, last]


def local_time(window: Window, time: str, out: Emitter) -> str:
    """Returns the name of the time by the clock that windows follow. `time`: the name of the row's time."""
    if window.local_zone is None:
        return time
    found = out.name("lt")
    out.constants["local_in"] = local_in
    out.line(f"{found} = local_in({window.local_zone!r}, {time})")
    return found


def no_time() -> None:
    """Raises `ValueFailure`: a row without a time is in no window, has no partners in an interval, and is not first."""
    raise ValueFailure(
        "the time of the row is NULL: the statement has windows, a join in an interval of time, FIRST_VALUE or "
        "LAST_VALUE, or the first row by time"
    )


def accumulator(call: AggregateCall, argument: SqlType | None) -> Accumulator:
    """Returns how the aggregate accumulates."""
    if call.function is not None:
        return user_accumulator(call, argument)
    if argument is None:
        return Accumulator("0", "{acc} += 1", int, _plus, _same)
    match call.name:
        case "LISTAGG":
            return list_of_texts(call.separator, is_distinct=call.is_distinct)
        case "ARRAY_AGG":
            return array_of_values(argument, is_distinct=call.is_distinct)
        case "JSON_ARRAYAGG":
            return json_array()
        case "JSON_OBJECTAGG":
            return json_object()
        case "FIRST_VALUE" | "LAST_VALUE":
            return value_by_time(call.name, argument)
    if call.is_distinct:
        found = _distinct(call, argument)
        return _of_floats(found) if has_floats(argument) else found
    if call.name in VARIANCES:
        return variance(call.name, call.type, argument)
    hint = type_hint(argument) | None
    match call.name:
        case "COUNT":
            return Accumulator("0", "{acc} += 1", int, _plus, _same)
        case "MIN" | "MAX" if argument.kind in types.APPROXIMATE:  # a NaN is the largest number
            is_min = call.name == "MIN"
            better, nan = ("<", "acc") if is_min else (">", "value")
            zero = "-(-{value} - {acc})" if is_min else "{value} + {acc}"  # of 0.0 and -0.0: -0.0 for MIN, 0.0 for MAX
            add = (
                f"if {{acc}} is None or {{value}} {better} {{acc}} or {{{nan}}} != {{{nan}}}: {{acc}} = {{value}}\n"
                f"elif not {{value}} and not {{acc}}: {{acc}} = {zero}"
            )
            best: Callable[..., Any] = min if is_min else max
            return Accumulator("None", add, hint, _or_none(functools.partial(best, key=values.in_order)), _same)
        case "MIN":
            return Accumulator("None", "if {acc} is None or {value} < {acc}: {acc} = {value}", hint, _least, _same)
        case "MAX":
            return Accumulator("None", "if {acc} is None or {value} > {acc}: {acc} = {value}", hint, _greatest, _same)
        case "SUM":
            return _sum(call.type, argument)
        case "AVG":
            return _average(call.type, argument)
    raise AssertionError(call.name)


def _same(value: Any) -> Any:
    return value


def _plus(one: Any, other: Any) -> Any:
    """The sum, of decimals with all their digits. Integers of more than 64 bits come as text."""
    if isinstance(one, Decimal):
        return values.DECIMALS.add(one, other)
    return int(one) + int(other)


def _or_none(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: other if one is None else one if other is None else combine(one, other)


_least = _or_none(min)
_greatest = _or_none(max)


def _sum(kind: SqlType, argument: SqlType) -> Accumulator:
    if argument.kind in types.APPROXIMATE:
        return Accumulator(
            "[]", "{acc}.append({value})", list[float], merged_floats, lambda acc: _float(kind, acc) if acc else None
        )
    add = "if {acc} is None: {acc} = {value}\nelse: {acc} += {value}"
    hint = type_hint(argument) | None if argument.kind == "DECIMAL" else int | str | None
    return Accumulator("None", add, hint, _or_none(_plus), lambda acc: None if acc is None else _ranged(kind, acc))


def _average(kind: SqlType, argument: SqlType) -> Accumulator:
    if argument.kind in types.APPROXIMATE:
        add = "{acc}[0] += 1\n{acc}[1].append({value})"

        def merge(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
            return [one[0] + other[0], merged_floats(one[1], other[1])]

        return Accumulator(
            "[0, []]",
            add,
            tuple[int, list[float]],
            merge,
            lambda acc: _as_float(kind, exact_sum(acc[1]) / acc[0]) if acc[0] else None,
        )
    add = "{acc}[0] += 1\n{acc}[1] += {value}"
    zero = "[0, zero]" if argument.kind == "DECIMAL" else "[0, 0]"
    return Accumulator(
        zero,
        add,
        tuple[int, Decimal] if argument.kind == "DECIMAL" else tuple[int, int | str],
        lambda one, other: [one[0] + other[0], _plus(one[1], other[1])],
        lambda acc: _quotient(kind, acc[1], acc[0]) if acc[0] else None,
    )


def _distinct(call: AggregateCall, argument: SqlType) -> Accumulator:
    inner_hint = type_hint(argument)
    hint: Any = set[inner_hint]  # type: ignore[valid-type]
    add = "{acc}.add({value})"

    def merge(one: set[Any], other: set[Any]) -> set[Any]:
        return one | other

    if call.name == "COUNT":
        return Accumulator("set()", add, hint, merge, len)
    if call.name in VARIANCES:
        return variance_of_distinct(call.name, call.type, argument)
    inner = _sum(call.type, argument) if call.name == "SUM" else None

    def finish(found: set[Any]) -> Any:
        if not found:
            return None
        if argument.kind in types.APPROXIMATE:
            total: Any = exact_sum(list(found))
            return _as_float(call.type, total if inner is not None else total / len(found))
        total = functools.reduce(_plus, found)
        return _ranged(call.type, total) if inner is not None else _quotient(call.type, total, len(found))

    return Accumulator("set()", add, hint, merge, finish)


def _of_floats(given: Accumulator) -> Accumulator:
    """The aggregate of a set in which a NaN is there once."""
    return replace(
        given,
        add="{acc}.add({once}({value}))",
        merge=lambda one, other: set(map(once, one | other)),
        constants={"once": once},
    )


def _float(kind: SqlType, partials: list[float]) -> float:
    return _as_float(kind, exact_sum(partials))


def _as_float(kind: SqlType, number: float) -> float:
    return single(number) if kind.kind == "FLOAT" else number


def _ranged(kind: SqlType, total: Any) -> Any:
    if kind.kind in BITS:
        total = int(total)
        limit = 1 << (BITS[kind.kind] - 1)
        if not -limit <= total < limit:
            raise ValueFailure(f"the sum {total} is out of range of {kind.text}: CAST the argument to a wider type")
        return total
    return values.fitting(total, kind.precision, kind.scale)


def _quotient(kind: SqlType, total: Any, count: int) -> Any:
    if kind.kind in BITS:
        total = int(total)
        quotient = abs(total) // count
        return quotient if total >= 0 else -quotient
    return values.fitting(values.DECIMALS.divide(total, count), kind.precision, kind.scale)


# ---- in a fragment --------------------------------------------------------------------------------------------------


def emit_groups(
    keys: Sequence[tuple[str, SqlType]],
    bucket: str,
    calls: Sequence[tuple[Accumulator, str, str]],
    ones: Sequence[str],
    out: Emitter,
) -> None:
    """Adds a row to its group. `calls`: each with the names of its argument and of its condition, or empty ones.

    `keys`: with their types. Of equal ones, the group shows the same one, whichever row comes first.
    `bucket`: the start of the row's piece of time, or empty. `ones`: what `emit_ones` gave.
    """
    out.constants["zero"] = Decimal(0)
    names = [_bound(how, out) for how, _, _ in calls]
    starts = [how.start.format(**bound) for (how, _, _), bound in zip(calls, names, strict=True)]
    shown = [f"{out.constant(once, 'u')}({name})" if has_floats(kind) else name for name, kind in keys]
    group = f"({', '.join([*shown, *([bucket] if bucket else [])])},)" if keys or bucket else "()"
    out.line(f"group = {group}")
    out.line("found = groups.get(group)")
    with out.block("if found is None:"):
        out.line(f"found = groups[group] = [{', '.join(starts)}]")
    for position, (how, argument, condition) in enumerate(calls):
        tests = [condition] if condition else []
        if argument and not how.takes_null:
            tests.append(f"{argument} is not None")
        source = how.take if ones[position] else how.add
        filled = {"acc": f"found[{position}]", "value": argument, "one": ones[position]}
        lines = source.format(**filled, **names[position]).split("\n")
        if tests:
            with out.block(f"if {' and '.join(tests)}:"):
                for each in lines:
                    out.line(each)
        else:
            for each in lines:
                out.line(each)


def emit_ones(calls: Sequence[tuple[Accumulator, str, str]], out: Emitter) -> list[str]:
    """Adds what can fail in an aggregate for a row, before anything of the row is in a group.

    Returns the names of the results; empty for an aggregate that cannot fail.
    """
    found = []
    for how, argument, condition in calls:
        if not how.one:
            found.append("")
            continue
        name = out.name("w")
        code = how.one.format(value=argument, **_bound(how, out))
        out.line(f"{name} = {f'{code} if {condition} else None' if condition else code}")
        found.append(name)
    return found


def _bound(how: Accumulator, out: Emitter) -> dict[str, str]:
    return {key: out.constant(each, "u") for key, each in how.constants.items()}


def started(calls: Iterable[tuple[AggregateCall, SqlType | None]]) -> list[Any]:
    """Returns the accumulators of no rows."""
    out = Emitter()
    out.constants["zero"] = Decimal(0)
    with out.block("def start():"):
        starts = []
        for call, argument in calls:
            how = accumulator(call, argument)
            starts.append(how.start.format(**{key: out.constant(each, "u") for key, each in how.constants.items()}))
        out.line(f"return [{', '.join(starts)}]")
    return out.function("start")()  # type: ignore[no-any-return]


class Merger:
    """Merges accumulators of one group, and makes the results of them.

    Args:
      calls: the aggregates, each with the type of its argument.
      statement: the name of the statement, for errors of the user's own aggregates.
    """

    def __init__(self, calls: Iterable[tuple[AggregateCall, SqlType | None]], statement: str = "") -> None:
        self._statement = f" ({statement})" if statement else ""
        self._how = [accumulator(call, argument) for call, argument in calls]
        self.hint: Any = tuple[tuple(each.hint for each in self._how)] if self._how else tuple[()]  # type: ignore[misc]
        """The type of the accumulators, for msgspec."""

    def merge(self, one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
        """Returns the accumulators of both."""
        try:
            return [how.merge(a, b) for how, a, b in zip(self._how, one, other, strict=True)]
        except FunctionError as error:
            raise FunctionError(f"{error}{self._statement}") from error

    def finish(self, accumulators: Sequence[Any]) -> list[Any]:
        """Returns the results. Raises `ValueFailure` if a sum is out of range."""
        try:
            return [how.finish(each) for how, each in zip(self._how, accumulators, strict=True)]
        except FunctionError as error:
            raise FunctionError(f"{error}{self._statement}") from error

    def finished(self, accumulators: Sequence[Any]) -> tuple[list[Any], dict[int, ValueFailure]]:
        """Returns the results, with NULL for those that fail, and the errors by position."""
        found, failed = [], {}
        for position, (how, each) in enumerate(zip(self._how, accumulators, strict=True)):
            try:
                found.append(how.finish(each))
            except ValueFailure as error:
                found.append(None)
                failed[position] = error
        return found, failed


# Rows of a fragment that become partial aggregates: of each batch, one for each group and piece of time.


def require_time(target: ToGroups, columns: list[str], out: Emitter) -> None:
    """Adds the test that a row has the time that its window, FIRST_VALUE or LAST_VALUE needs."""
    if target.window is not None and target.fields[target.window.time].type.is_nullable:
        out.constants["no_time"] = no_time
        out.line(f"if {columns[target.window.time]} is None: no_time()")
    for each in target.calls:
        if each.name in BY_TIME and each.argument is not None:
            out.constants["no_time"] = no_time
            row = columns[each.argument]
            out.line(f"if {row} is not None and {row}[1] is None: no_time()")


def _calls(target: ToGroups, columns: list[str]) -> list[tuple[Accumulator, str, str]]:
    return [
        (
            accumulator(each, None if each.argument is None else target.fields[each.argument].type),
            "" if each.argument is None else columns[each.argument],
            "" if each.condition is None else columns[each.condition],
        )
        for each in target.calls
    ]


def ones_of(target: ToGroups, columns: list[str], on_error: str, out: Emitter) -> list[str]:
    """Returns what `emit_ones` gives, if a row that fails can be left out; else nothing: it fails the job anyway."""
    if on_error == "fail":
        return [""] * len(target.calls)
    return emit_ones(_calls(target, columns), out)


def to_groups(target: ToGroups, columns: list[str], ones: list[str], out: Emitter) -> None:
    """Adds a row to its group. `ones`: what `ones_of` gave for it."""
    bucket = ""
    window = target.window
    if window is not None:
        time = columns[window.time]
        if window.has_own_bounds:
            time = local_time(window, time, out)
        bucket = out.name("b")
        out.line(
            f"{bucket} = {time}"
            if window.kind == "SESSION"
            else f"{bucket} = {time} - ({time} - {window.offset_us}) % {window.slide_us}"
            if window.offset_us
            else f"{bucket} = {time} - {time} % {window.slide_us}"
        )
    keys = [(columns[each], target.fields[each].type) for each in target.keys]
    emit_groups(keys, bucket, _calls(target, columns), ones, out)
