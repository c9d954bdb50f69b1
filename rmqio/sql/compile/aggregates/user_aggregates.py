"""Aggregates of the user's own: a class whose accumulators travel by their Python type.

Accumulators are bytes of msgpack between batches and workers, as those of the built-in aggregates are: nothing that
travels is code. An argument that is NULL leaves the row out, unless its parameter can be None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rmqio.sql.compile.aggregates.accumulators import Accumulator
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.rows import pack_group, type_hint
from rmqio.sql.types import SqlType
from rmqio.sql.user import running, values
from rmqio.sql.user.definition import UserFunction
from rmqio.sql.user.loading import FunctionError
from rmqio.sql.values import ValueFailure

_NOTHING: Final = object()
"""Stands for the accumulator of a row that does not count."""


class _Methods:
    """The methods of a class, Flink's or those of Beam's CombineFn, in one shape: each returns the accumulator."""

    def __init__(self, function: UserFunction, kinds: tuple[SqlType, ...]) -> None:
        given, known = running.loaded(function)
        self._function = function
        try:
            self._instance = given() if isinstance(given, type) else given
        except running.RAISED as error:
            raise self._failed("", error) from error
        self._is_of_beam = known.is_of_beam
        self._into = running.converters(function, kinds)
        self._needed = [position for position in range(len(kinds)) if not function.parameter(position).type.is_nullable]
        self._out_of = values.out_of(function.result.nullable())

    def _failed(self, method: str, error: BaseException) -> FunctionError:
        where = f" in {method}" if method else ""
        return FunctionError(
            f"function {self._function.name}, an aggregate, has failed{where}: {running.reason(error)}"
        )

    def _called(self, method: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except MemoryError:
            raise
        except running.RAISED as error:  # the accumulator may be half changed: no row can be left out alone
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
        except Exception as error:  # it is the row of the group that has no value
            raise ValueFailure(str(self._failed(method, error))) from error


def user_accumulator(call: AggregateCall, argument: SqlType | None) -> Accumulator:
    """Returns how it accumulates. The argument is the ROW of all arguments; None: there are none."""
    assert call.function is not None
    kinds = () if argument is None else argument.elements
    methods = _Methods(call.function, kinds)
    row = "()" if argument is None else "{value}"
    if call.is_distinct and argument is not None:
        return _distinct(methods, argument)
    _, known = running.loaded(call.function)
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
