"""Functions in a worker: imported, compared with what the plan knows, and called with Python's values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.sql.errors import Refusal
from rmqio.sql.types import SqlType
from rmqio.sql.user import loading, values
from rmqio.sql.user.definition import TABLE, UserFunction
from rmqio.sql.user.inspection import Inspected, WrongFunction, inspected
from rmqio.sql.user.loading import FunctionError
from rmqio.sql.values import ValueFailure

RAISED: Final = (Exception, SystemExit, GeneratorExit)
"""What a function of the user's raises: `sys.exit()` in it ends no worker."""


@functools.cache
def loaded(function: UserFunction) -> tuple[Any, Inspected]:
    """Returns the Python object and what is known of it. Raises `FunctionError` if it is not the planned one."""
    try:
        given = loading.found(function.module, function.attribute, function.folders)
        known = inspected(given)
    except (loading.NotFound, WrongFunction, Refusal) as error:
        raise FunctionError(f"function {function.name}: {error}") from None
    if (known.kind, known.parameters, known.result) != (function.kind, function.parameters, function.result):
        raise FunctionError(
            f"function {function.name}: the module {function.module} differs from the one that the job was started "
            "with: its types are others"
        )
    return given, known


def converters(function: UserFunction, kinds: Sequence[SqlType]) -> list[Callable[[Any], Any] | None]:
    """Returns what makes Python's values of the arguments. None: there is nothing to do."""
    _, known = loaded(function)
    last = len(function.parameters) - 1
    return [values.into(kind, known.hints[min(position, last)]) for position, kind in enumerate(kinds)]


@dataclass(frozen=True, slots=True)
class Failing:
    """Makes the error of a call that has failed. `shown`: the call as SQL writes it."""

    shown: str

    def __call__(self, error: BaseException) -> None:
        if isinstance(error, MemoryError):
            raise error
        raise ValueFailure(f"function {self.shown}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Returns one line that says what a function of the user's has raised."""
    if isinstance(error, ValueFailure):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.300}" if text else type(error).__name__


def rows_of(function: UserFunction) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Returns what makes rows of the result of a table function: all of them, so that a row fails as a whole."""
    _, known = loaded(function)
    row = values.out_of(function.result.nullable(False))
    one = values.out_of(function.result.elements[0].nullable()) if not known.has_columns else None

    def rows(found: Iterable[Any] | None) -> list[tuple[Any, ...]]:
        if found is None or isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise ValueFailure(f"it returned {type(found).__name__}, but its result is an iterable of rows")
        if one is not None:
            return [(one(each),) for each in found]
        return [row(each) for each in found]

    assert function.kind == TABLE
    return rows
