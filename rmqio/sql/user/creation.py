"""CREATE FUNCTION: imports the function once here, so that what is wrong is an error of the statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rmqio.sql.errors import Refusal
from rmqio.sql.syntax import statements
from rmqio.sql.user import loading
from rmqio.sql.user.definition import AGGREGATE, UserFunction
from rmqio.sql.user.inspection import Inspected, WrongFunction, inspected


def function_of(statement: statements.CreateFunction, folders: Sequence[str]) -> UserFunction:
    """Returns the function. Raises `Refusal` if it is not there, or is none that SQL can call."""
    name = statement.name
    language = (statement.language or "").upper()
    if language != "PYTHON":
        what = f"functions of {statement.language} do not run here" if language else "LANGUAGE PYTHON is missing"
        raise Refusal(f"{what}: write CREATE FUNCTION {name} AS 'module.name' LANGUAGE PYTHON", statement.span)
    span = statement.path_span
    try:
        module, attribute = loading.split(statement.path, folders)
        given = loading.found(module, attribute, folders)
        known = inspected(given)
        if known.kind == AGGREGATE:
            _check_accumulator(given, known)
    except loading.NotFound as error:
        raise Refusal(str(error), span) from None
    except WrongFunction as error:
        raise Refusal(f"{statement.path} cannot be the function {name}: {error}", span) from None
    return UserFunction(
        name.text,
        known.kind,
        module,
        attribute,
        tuple(folders),
        known.parameters,
        known.required,
        known.is_variadic,
        known.result,
        known.is_deterministic,
    )


def _check_accumulator(given: Any, known: Inspected) -> None:
    """Sends the accumulator of no rows to itself, as it travels between workers."""
    kind = known.accumulator
    try:
        instance = given() if isinstance(given, type) else given
        first = instance.create_accumulator()
    except (Exception, SystemExit) as error:  # noqa: BLE001  a user's class can raise anything
        raise WrongFunction(f"it fails before the first row: {type(error).__name__}: {error}") from None
    try:
        msgspec.msgpack.Decoder(kind).decode(msgspec.msgpack.encode(first))
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongFunction(
            f"its accumulator {first!r:.60} cannot travel as {kind}: {error}; use numbers, text, list, tuple, dict, "
            "set, a NamedTuple or a dataclass"
        ) from None
