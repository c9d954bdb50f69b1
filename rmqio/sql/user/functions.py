"""Functions of the user's own: inspected when they are created in the driver, and again where a worker calls them."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rmqio.sql import types
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.types import SqlType
from rmqio.sql.user import conversions, definition, hints
from rmqio.sql.user.definition import AGGREGATE, SCALAR, TABLE, FunctionError, Parameter, UserFunction
from rmqio.sql.user.hints import ATTRIBUTE, HintError, Stated
from rmqio.sql.values import RAISED, ValueFailure, failure_reason, shown_value

_FLINK: Final = ("create_accumulator", "accumulate", "merge", "get_value")
_BEAM: Final = ("create_accumulator", "add_input", "merge_accumulators", "extract_output")


class WrongFunction(Exception):
    """An object that is not a function of SQL; the text says why, and what to write."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The facts about a function.

    Attributes:
      kind, parameters, required, is_variadic, result, is_deterministic: as in `UserFunction`.
      hints: the hint of each parameter, for its Python values.
      has_columns: of a table function: its rows are tuples; otherwise each is the value of the one column.
      is_of_beam: of an aggregate: its methods are those of Beam's CombineFn.
      accumulator: of an aggregate: the Python type of its accumulators.
    """

    kind: str
    parameters: tuple[Parameter, ...]
    required: int
    is_variadic: bool
    result: SqlType
    is_deterministic: bool
    hints: tuple[Any, ...]
    has_columns: bool = True
    is_of_beam: bool = False
    accumulator: Any = None


def inspected(given: Any) -> Inspected:
    """Returns what is known of a Python object. Raises `WrongFunction`."""
    stated = getattr(given, ATTRIBUTE, None)
    try:
        if isinstance(given, type) or hasattr(given, "create_accumulator"):
            return _aggregate(given, stated)
        if not callable(given):
            raise WrongFunction(f"it is {type(given).__name__}, not a function")
        return _function(given, stated)
    except HintError as error:
        raise WrongFunction(str(error)) from None


# ---- functions ------------------------------------------------------------------------------------------------------


def _function(given: Any, stated: Stated | None) -> Inspected:
    if inspect.iscoroutinefunction(given) or inspect.isasyncgenfunction(given):
        raise WrongFunction("it is asynchronous, and a row is computed at once: write def without async")
    called = given if inspect.isroutine(given) else type(given).__call__
    known = hints.resolved_hints(called)
    result = known.get("return")
    is_table = inspect.isgeneratorfunction(called) or hints.is_iterable(result)
    kind = stated.kind if stated is not None else TABLE if is_table else SCALAR
    if kind == SCALAR and is_table:
        raise WrongFunction("it gives several rows, and @udf is for scalar functions: use @udtf")
    parameters = _parameters(given, known, stated, skipped=0)
    if kind == TABLE:
        row, has_columns = _columns(result, stated)
        return Inspected(TABLE, *parameters[:3], row, False, parameters[3], has_columns)
    if kind != SCALAR:
        raise WrongFunction("@udaf is for a class with create_accumulator, but this is a function")
    is_deterministic = stated is not None and stated.is_deterministic
    return Inspected(SCALAR, *parameters[:3], _result(known, stated), is_deterministic, parameters[3])


def _parameters(
    called: Any, known: dict[str, Any], stated: Stated | None, *, skipped: int
) -> tuple[tuple[Parameter, ...], int, bool, tuple[Any, ...]]:
    try:
        signature = list(inspect.signature(called).parameters.values())[skipped:]
    except (ValueError, TypeError):
        raise WrongFunction("Python does not know its parameters: call it in a function with type hints") from None
    found: list[Parameter] = []
    given_hints: list[Any] = []
    required, is_variadic = 0, False
    given = None if stated is None else stated.input_types
    for each in signature:
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if each.kind is inspect.Parameter.KEYWORD_ONLY:
            if each.default is inspect.Parameter.empty:
                raise WrongFunction(f"its parameter {each.name} is keyword-only, but SQL passes arguments by position")
            continue
        position = len(found)
        hint = known.get(each.name)
        if given is not None:
            if position >= len(given):
                if each.default is not inspect.Parameter.empty or each.kind is inspect.Parameter.VAR_POSITIONAL:
                    break
                raise WrongFunction(f"input_types has {len(given)} types, and the parameter {each.name} has none")
            is_nullable = hint is None or hints.without_none(hint)[1]
            kind = type_named(given[position]).nullable(is_nullable)
        elif hint is None:
            raise WrongFunction(
                f"its parameter {each.name} has no type hint: write {each.name}: str, or state the types with a "
                "decorator of rmqio.sql"
            )
        else:
            kind = _hinted(hint, f"its parameter {each.name}")
        found.append(Parameter(each.name, kind))
        given_hints.append(hint)
        is_variadic = each.kind is inspect.Parameter.VAR_POSITIONAL
        required += not is_variadic and each.default is inspect.Parameter.empty
    if given is not None and len(given) > len(found):
        raise WrongFunction(f"input_types has {len(given)} types, and there are {len(found)} parameters")
    return tuple(found), required, is_variadic, tuple(given_hints)


def _hinted(hint: Any, what: str) -> SqlType:
    try:
        return hints.sql_type(hint)
    except HintError as error:
        raise WrongFunction(f"{what}: {error}") from None


def _result(known: dict[str, Any], stated: Stated | None, where: str = "") -> SqlType:
    hint = known.get("return")
    if stated is not None and stated.result_types is not None:
        is_nullable = hint is None or hints.without_none(hint)[1]
        return type_named(stated.result_types[0]).nullable(is_nullable)
    if "return" not in known:
        raise WrongFunction(
            f"its result has no type hint: write def {where or 'f'}(...) -> str, or state the type with a decorator of "
            "rmqio.sql"
        )
    if hint is type(None):
        raise WrongFunction("its result is None: a function must return a value")
    return _hinted(hint, "its result")


def _columns(result: Any, stated: Stated | None) -> tuple[SqlType, bool]:
    """The ROW of a table function's columns, and whether its rows are tuples."""
    names = None if stated is None else stated.names
    if stated is not None and stated.result_types is not None:
        kinds = tuple(type_named(each) for each in stated.result_types)
        row = SqlType("ROW", elements=kinds, names=names or tuple(f"f{i}" for i in range(len(kinds))))
        return _named(row, names), len(kinds) > 1
    hint = hints.row_hint(result)
    if hint is None and stated is not None:  # @udtf of a function that returns a list
        arguments = typing.get_args(hints.without_none(result)[0])
        hint = arguments[0] if len(arguments) == 1 else None
    if hint is None:
        raise WrongFunction(
            "it returns rows, but its hint does not say of which type: write -> Iterator[tuple[str, int]], or "
            "Iterator of a NamedTuple"
        )
    inner, _ = hints.without_none(hint)
    kind = _hinted(hint, "its result")
    if kind.kind != "ROW" or not (hints.fields_of(inner) or typing.get_origin(inner) is tuple):
        return _named(SqlType("ROW", elements=(kind.nullable(),), names=names or ("f0",)), names), False
    return _named(SqlType("ROW", elements=kind.elements, names=names or kind.names), names), True


def _named(row: SqlType, names: tuple[str, ...] | None) -> SqlType:
    if names is not None and len(names) != len(row.elements):
        raise WrongFunction(f"names has {len(names)} names, and there are {len(row.elements)} columns")
    if len(set(row.names)) < len(row.names):
        raise WrongFunction(f"two columns have one name: {', '.join(row.names)}")
    return row


# ---- aggregates -----------------------------------------------------------------------------------------------------


def _aggregate(given: Any, stated: Stated | None) -> Inspected:
    def lacks(methods: Sequence[str]) -> list[str]:
        return [each for each in methods if not callable(getattr(given, each, None))]

    is_of_beam = "add_input" not in lacks(_BEAM)
    wanted = _BEAM if is_of_beam else _FLINK
    if "create_accumulator" in lacks(wanted):
        raise WrongFunction("it is a class, and no aggregate function: name a function, or a method of the class")
    if missing := lacks(wanted):
        raise WrongFunction(
            f"an aggregate function needs {', '.join(missing)}: partial results of batches are always merged; the "
            f"methods are {', '.join(_FLINK)}, or those of Beam's CombineFn"
        )
    add = getattr(given, wanted[1])
    known = hints.resolved_hints(add)
    parameters = _parameters(add, known, stated, skipped=2 if isinstance(given, type) else 1)
    result = _result(hints.resolved_hints(getattr(given, wanted[3])), stated, wanted[3])
    made = hints.resolved_hints(given.create_accumulator).get("return")
    accumulator = stated.accumulator if stated is not None and stated.accumulator is not None else made
    if accumulator is None or accumulator is type(None):
        raise WrongFunction(
            "its accumulators are encoded by their type: write def create_accumulator(self) -> tuple[int, float], or "
            "@udaf(accumulator=...)"
        )
    return Inspected(
        AGGREGATE, *parameters[:3], result, False, parameters[3], is_of_beam=is_of_beam, accumulator=accumulator
    )


def type_named(text: str) -> SqlType:
    """Returns the type that a decorator states. Raises `WrongFunction`."""
    from rmqio.sql.syntax.parser import parse

    try:
        (statement,) = parse(f"SELECT CAST(NULL AS {text})")
        assert isinstance(statement, statements.QueryStatement)
        body = statement.query.body
        (item,) = body.items if isinstance(body, nodes.Select) else ()
        if isinstance(item, nodes.Item) and isinstance(item.expression, nodes.Cast) and item.alias is None:
            return types.resolve(item.expression.type)
    except (SqlError, Refusal, ValueError, AssertionError):
        pass
    raise WrongFunction(f"its decorator states {text!r}, which is not a type of SQL")


# CREATE FUNCTION: imports the function once here, so that what is wrong is an error of the statement.


def function_of(statement: statements.CreateFunction, folders: Sequence[str]) -> UserFunction:
    """Returns the function. Raises `Refusal` if it is not there, or is none that SQL can call."""
    name = statement.name
    language = (statement.language or "").upper()
    if language != "PYTHON":
        what = f"functions of {statement.language} do not run here" if language else "LANGUAGE PYTHON is missing"
        raise Refusal(f"{what}: write CREATE FUNCTION {name} AS 'module.name' LANGUAGE PYTHON", statement.span)
    span = statement.path_span
    try:
        module, attribute = definition.split_path(statement.path, folders)
        given = definition.find_attribute(module, attribute, folders)
        known = inspected(given)
        if known.kind == AGGREGATE:
            _check_accumulator(given, known)
    except definition.NotFound as error:
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
    except RAISED as error:
        raise WrongFunction(f"it fails before the first row: {failure_reason(error)}") from None
    try:
        msgspec.msgpack.Decoder(kind).decode(msgspec.msgpack.encode(first))
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongFunction(
            f"its accumulator {shown_value(first)} cannot travel as {kind}: {error}; use numbers, text, list, tuple, "
            "dict, set, a NamedTuple or a dataclass"
        ) from None


# Functions in a worker: imported, compared with what the plan knows, and called with Python's values.


@functools.cache
def loaded(function: UserFunction) -> tuple[Any, Inspected]:
    """Returns the Python object and what is known of it. Raises `FunctionError` if it is not the planned one."""
    try:
        given = definition.find_attribute(function.module, function.attribute, function.folders)
        known = inspected(given)
    except (definition.NotFound, WrongFunction, Refusal) as error:
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
    return [conversions.into(kind, known.hints[min(position, last)]) for position, kind in enumerate(kinds)]


@dataclass(frozen=True, slots=True)
class Failing:
    """Makes the error of a call that has failed. `shown`: the call as SQL writes it."""

    shown: str

    def __call__(self, error: BaseException) -> None:
        raise ValueFailure(f"function {self.shown}: {failure_reason(error)}") from error


def rows_of_function(function: UserFunction) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Returns what makes rows of the result of a table function: all of them, so that a row fails as a whole."""
    _, known = loaded(function)
    row = conversions.out_of(function.result.nullable(False))
    one = conversions.out_of(function.result.elements[0].nullable()) if not known.has_columns else None

    def rows(found: Iterable[Any] | None) -> list[tuple[Any, ...]]:
        if found is None or isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise ValueFailure(f"it returned {type(found).__name__}, but its result is an iterable of rows")
        if one is not None:
            return [(one(each),) for each in found]
        return [row(each) for each in found]

    assert function.kind == TABLE
    return rows
