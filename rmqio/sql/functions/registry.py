"""The functions of SQL: their names, the types that they take and give, and what computes them.

A module of functions is a list of `define` calls. Signatures are short texts: `s i [i] -> s` takes text, an integer
and, if it is there, another integer, and gives text; see `_KINDS`. A trailing `...` repeats the argument before it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.types import SqlType

Returns = Callable[[Sequence[SqlType]], SqlType]
Takes = Callable[[Sequence[SqlType]], Sequence[SqlType] | None]
Check = Callable[[Any], object]


class WrongArguments(Exception):
    """Arguments that the function does not take; the text says which it takes."""


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Attributes:
      name: in upper case.
      signatures: the texts of the types that it takes.
      call: the function at run time, or the name of an attribute of its module; it sees no NULL if it is strict.
      inline: an expression of Python with the arguments as {0}, {1}, instead of the call.
      is_strict: NULL if an argument is NULL.
      is_pure: the same for the same arguments, so that it is computed once.
      takes: the types to which the arguments are converted by those given, if the signature does not say it; None:
        they do not fit.
      returns: the type of the result by those of the converted arguments, if the signature does not say it.
      can_be_null: the result can be NULL though no argument is.
      constants: what looks at arguments, by position, that are constants, when a query is planned; it raises
        `ValueFailure` for a value with which the call can only fail.
    """

    name: str
    signatures: tuple[str, ...]
    call: Callable[..., Any] | None = None
    inline: str = ""
    is_strict: bool = True
    is_pure: bool = True
    takes: Takes | None = None
    returns: Returns | None = None
    can_be_null: bool = False
    constants: Mapping[int, Check] = field(default_factory=dict)


FUNCTIONS: Final[dict[str, Function]] = {}
_MODULES: Final = (
    "collections", "json", "numbers", "operators", "patterns", "printf", "texts", "times",
)  # fmt: skip

_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "s": ("VARCHAR",),
    "i": types.INTEGERS,
    "l": types.INTEGERS,
    "n": types.NUMERIC,
    "f": types.NUMERIC,  # converted to DOUBLE
    "b": ("BOOLEAN",),
    "d": ("DATE",),
    "t": ("TIME",),
    "ts": types.TIMESTAMPS,
    "dt": ("DATE", *types.TIMESTAMPS),
    "x": ("VARBINARY",),
    "a": ("ARRAY",),
    "m": ("MAP",),
    "o": types.ORDERED,
    "any": (),
}
_TEXTS: Final = {
    "s": "STRING", "i": "INT", "l": "BIGINT", "n": "a number", "f": "a number", "b": "BOOLEAN", "d": "DATE",
    "t": "TIME", "ts": "TIMESTAMP", "dt": "DATE or TIMESTAMP", "x": "BYTES", "a": "ARRAY", "m": "MAP", "o": "any",
    "any": "any",
}  # fmt: skip
_RESULTS: Final[dict[str, SqlType]] = {
    "s": types.VARCHAR, "i": types.INTEGER, "l": types.BIGINT, "f": types.DOUBLE, "b": types.BOOLEAN, "d": types.DATE,
    "t": types.TIME, "ts": types.TIMESTAMP, "ltz": types.TIMESTAMP_LTZ, "x": types.BYTES,
    "as": types.array_of(types.VARCHAR), "ms": SqlType("MAP", elements=(types.VARCHAR, types.VARCHAR)),
}  # fmt: skip
_OF_NULL: Final[dict[str, SqlType]] = {
    **_RESULTS, "n": types.INTEGER, "dt": types.DATE, "a": types.array_of(types.NULL),
    "m": SqlType("MAP", elements=(types.NULL, types.NULL)), "o": types.NULL, "any": types.NULL,
}  # fmt: skip
"""The types that NULL has as an argument."""
_WANTED: Final[dict[str, SqlType]] = {"i": types.INTEGER, "l": types.BIGINT, "f": types.DOUBLE}


def define(name: str, signatures: str, call: Callable[..., Any] | None = None, **how: Any) -> None:
    """Adds a function; `signatures` are separated by `|`. Another name of it: `define("A, B", ...)`."""
    for each in name.split(", "):
        FUNCTIONS[each] = Function(each, tuple(part.strip() for part in signatures.split("|")), call, **how)


def match(function: Function, arguments: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    """Returns the types to which the arguments are converted, and that of the result. Raises `WrongArguments`."""
    for signature in function.signatures:
        takes, _, gives = signature.partition("->")
        wanted = _fitted(takes.split(), arguments)
        if wanted is not None and function.takes is not None:
            unified = function.takes(wanted)
            wanted = None if unified is None else list(unified)
        if wanted is None:
            continue
        result = function.returns(wanted) if function.returns else _RESULTS[gives.strip()]
        is_nullable = function.can_be_null or (function.is_strict and types.any_nullable(arguments))
        return wanted, result if not function.is_strict else result.nullable(is_nullable)
    raise WrongArguments(usage(function))


def usage(function: Function) -> str:
    """Returns how the function is called: `LEFT(STRING, INT)`."""
    return " or ".join(f"{function.name}({_shown(each.partition('->')[0])})" for each in function.signatures)


def _shown(takes: str) -> str:
    shown = []
    for part in takes.split():
        if part == "...":
            shown.append("...")
        else:
            optional = part.startswith("[")
            text = _TEXTS[part.strip("[]")]
            shown.append(f"[{text}]" if optional else text)
    return ", ".join(shown)


def _fitted(parts: list[str], arguments: Sequence[SqlType]) -> list[SqlType] | None:
    repeats = parts and parts[-1] == "..."
    parts = parts[:-1] if repeats else parts
    needed = sum(not each.startswith("[") for each in parts)
    if len(arguments) < needed or (len(arguments) > len(parts) and not repeats):
        return None
    wanted = []
    for position, argument in enumerate(arguments):
        kind = parts[min(position, len(parts) - 1)].strip("[]")
        found = _converted(kind, argument)
        if found is None:
            return None
        wanted.append(found)
    return wanted


def _converted(kind: str, argument: SqlType) -> SqlType | None:
    """The type to which an argument of this type is converted for a parameter; None: it does not fit."""
    if argument.kind == "NULL":
        return _OF_NULL[kind]
    if _KINDS[kind] and argument.kind not in _KINDS[kind]:
        return None
    wanted = _WANTED.get(kind)
    if wanted is None or (kind == "i" and argument.kind == "BIGINT"):
        return argument
    return wanted.nullable(argument.is_nullable)


@functools.cache
def load() -> dict[str, Function]:
    """Returns all functions by name."""
    for name in _MODULES:  # each defines its own
        importlib.import_module(f"rmqio.sql.functions.{name}")
    return FUNCTIONS
