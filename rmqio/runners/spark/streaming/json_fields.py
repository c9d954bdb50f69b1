"""Checks decoded JSON field by field: a field that is missing or has the wrong type is an error that names it.

The processes that plan, run and monitor a query all decode such values, so the module imports neither Beam nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Final, Self

from rmqio.errors import RmqioError

_REQUIRED: Final = object()
_MOST_CHARACTERS: Final = 80
_NAMES: Final[Mapping[type, str]] = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "an array",
    NoneType: "null",
}


class MalformedJson(RmqioError, ValueError):
    """A value that another process or an earlier run has encoded does not have the form that is expected here."""


class Fields:
    """The fields of a JSON object, or the values of an array under the names that they have here."""

    __slots__ = ("_found", "_where")

    def __init__(self, where: str, found: object, names: Sequence[str] | None = None) -> None:
        """Args: `where`: what errors call the object; `names`: if given, any other field is an error."""
        self._where = where
        self._found: dict[str, object] = _checked(where, found, dict)
        unexpected = [] if names is None else [name for name in self._found if name not in names]
        if unexpected:
            raise MalformedJson(f"{where}.{unexpected[0]} is not expected")

    @classmethod
    def decode(cls, where: str, encoded: bytes, names: Sequence[str] | None = None) -> Self:
        """Decodes an object."""
        return cls(where, _parsed(where, encoded), names)

    @classmethod
    def decode_array(cls, where: str, encoded: bytes | str, names: Sequence[str]) -> Self:
        """Decodes an array whose values have these names."""
        found: list[object] = _checked(where, _parsed(where, encoded), list)
        if len(found) > len(names):
            raise MalformedJson(f"{where} has {len(found)} values, of which only {', '.join(names)} are expected")
        return cls(where, dict(zip(names, found, strict=False)))

    def value(self, name: str, *kinds: type, default: object = _REQUIRED) -> Any:
        """Returns the value of a field, which has one of these types. Without a default, the field is required."""
        found = self._found.get(name, default)
        if found is _REQUIRED:
            raise MalformedJson(f"{self._where}.{name} is missing")
        if found is default:
            return default
        return found if type(found) in kinds else _checked(f"{self._where}.{name}", found, *kinds)

    def values(self, *kinds: type) -> dict[str, Any]:
        """Returns the values of all fields, which have one of these types each."""
        for name, found in self._found.items():
            if type(found) not in kinds:
                _checked(f"{self._where}.{name}", found, *kinds)
        return self._found

    def pairs(self) -> dict[str, tuple[int, int]]:
        """Returns the values of all fields, which are two integers each."""
        pairs: dict[str, tuple[int, int]] = {}
        for name, found in self._found.items():
            match found:
                case [first, second] if type(first) is int and type(second) is int:
                    pairs[name] = (first, second)
                case _:
                    raise MalformedJson(f"{self._where}.{name} must be an array of two integers, not {_shown(found)}")
        return pairs

    def nested(self, name: str, names: Sequence[str] | None = None, *, is_optional: bool = False) -> Fields:
        """Returns the fields of a field that is an object itself. If it is optional, it is empty where it is missing.

        If `names` are given, any other field is an error.
        """
        found = self.value(name, dict, default={}) if is_optional else self.value(name, dict)
        return Fields(f"{self._where}.{name}", found, names)

    def all_nested(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Fields]]:
        """Yields all fields, which are objects themselves, by name."""
        for name in self._found:
            yield name, self.nested(name, names)

    def integers_of_objects(self, name: str, *, is_optional: bool = False) -> dict[str, dict[str, int]]:
        """Returns a field that is an object of objects of integers."""
        found = self.nested(name, is_optional=is_optional)
        return {each: fields.values(int) for each, fields in found.all_nested()}


def _parsed(where: str, encoded: bytes | str) -> object:
    try:
        found: object = json.loads(encoded)
    except ValueError as error:
        raise MalformedJson(f"{where} is not JSON: {error}") from None
    return found


def _checked(where: str, found: object, *kinds: type) -> Any:
    if type(found) not in kinds:  # not `isinstance`: true is not an integer
        expected = " or ".join(_NAMES[kind] for kind in kinds)
        raise MalformedJson(f"{where} must be {expected}, not {_shown(found)}")
    return found


def _shown(found: object) -> str:
    return f"{found!r:.{_MOST_CHARACTERS}}"
