"""The fields of NamedTuples, dataclasses and TypedDicts."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from typing import Any, Final, NotRequired, Required

from rmqio.errors import LocalError

_QUALIFIERS: Final = {Required, NotRequired, getattr(typing, "ReadOnly", Required)}


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_typed_dict(cls: type) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_absent(default: object) -> bool:
    """Whether a dataclass's field has no such default.

    Not `is MISSING`: a class of the main program is copied to a worker together with its own copy of MISSING.
    """
    return isinstance(default, type(dataclasses.MISSING))


def annotations_of(cls: type) -> dict[str, tuple[Any, bool]]:
    """The annotation of each field, and whether it is required. Raises `LocalError` if one cannot be evaluated."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as error:
        raise LocalError(f"the annotations of {cls.__qualname__} cannot be evaluated: {error}") from error
    if is_named_tuple(cls):
        defaults = cls._field_defaults  # type: ignore[attr-defined]
        return {name: (hints.get(name, Any), name not in defaults) for name in cls._fields}  # type: ignore[attr-defined]
    if is_typed_dict(cls):
        # The qualifiers come first: in annotations that are text, Python has not seen them.
        required = cls.__required_keys__  # type: ignore[attr-defined]
        marks = {name: _marks(hint) for name, hint in hints.items()}
        return {
            name: (hint, Required in marks[name] or (name in required and NotRequired not in marks[name]))
            for name, hint in hints.items()
        }
    return {
        field.name: (hints.get(field.name, Any), is_absent(field.default) and is_absent(field.default_factory))
        for field in dataclasses.fields(cls)
        if field.init
    }


def _marks(hint: Any) -> set[Any]:
    found = set()
    while (origin := typing.get_origin(hint)) in _QUALIFIERS or origin is typing.Annotated:
        found.add(origin)
        hint = typing.get_args(hint)[0]
    return found


def require_constructor(cls: type, fields: Mapping[str, object]) -> None:
    """Raises `LocalError` unless the constructor takes the fields by their names, and needs nothing else."""
    if is_typed_dict(cls):
        return
    try:
        parameters = inspect.signature(cls).parameters
    except (TypeError, ValueError) as error:
        raise LocalError(f"the constructor of {cls.__qualname__} cannot be inspected: {error}") from error
    kinds = {each.kind for each in parameters.values()}
    needed = {
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
    if more := needed - set(fields):
        raise LocalError(f"the constructor of {cls.__qualname__} needs {', '.join(sorted(more))}, which is not a field")
    if (less := set(fields) - set(parameters)) and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise LocalError(f"the constructor of {cls.__qualname__} does not take its field {', '.join(sorted(less))}")


def unwrapped(hint: Any) -> Any:
    """Return the type without the parts that say nothing about the value: `Annotated`, `Required`, names of types."""
    while True:
        origin = typing.get_origin(hint)
        if origin in _QUALIFIERS or origin is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # from Python 3.12 on
            hint = hint.__value__
        else:
            return hint
