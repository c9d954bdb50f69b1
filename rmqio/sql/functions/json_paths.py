"""Paths of SQL/JSON: `$.a.b[0]`, `$['a']`, `$[*]`, after `lax` or `strict`, which find the same."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NoReturn

from rmqio.sql.values import ValueFailure, shown

_MODE: Final = re.compile(r"\s*(?:(?:lax|strict)\s+)?", re.IGNORECASE)
_STEP: Final = re.compile(
    r"\.(?P<star>\*)|\.?\[\s*(?P<index>-?\d{1,9})\s*\]|\.?\[\s*(?P<all>\*)\s*\]"
    r"|\.?\[\s*'(?P<single>(?:[^'\\]|\\.)*)'\s*\]|\.?\[\s*\"(?P<double>(?:[^\"\\]|\\.)*)\"\s*\]"
    r"|\.(?P<name>[^\s.\[\]()*'\"]+)",
    re.DOTALL,
)

ALL: Final = None
"""The step that takes every element of an array, or every value of an object."""
MISSING: Final = object()
"""The result where nothing is found; JSON's null is None."""


class NotJson(ValueError):
    """Text that is not JSON."""


@lru_cache(maxsize=1000)
def steps(path: str) -> tuple[str | int | None, ...]:
    """Returns names of members, positions of elements, and `ALL`. Raises `ValueFailure` for what is not supported."""
    mode = _MODE.match(path)
    rest = path[mode.end() if mode else 0 :].strip()
    rest = rest[1:] if rest.startswith("$") else f".{rest}"
    found: list[str | int | None] = []
    start = 0
    while start < len(rest):
        step = _STEP.match(rest, start)
        if step is None:
            raise ValueFailure(f"{shown(path)} is not a JSON path like $.a.b[0], or not a supported one")
        start = step.end()
        if step["star"] or step["all"]:
            found.append(ALL)
        elif step["index"]:
            found.append(int(step["index"]))
        else:
            quoted = step["single"] if step["single"] is not None else step["double"]
            found.append(step["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
    return tuple(found)


def lookup(document: Any, path: tuple[str | int | None, ...]) -> Any:
    """Returns what stands at the path, or `MISSING`; a path with `ALL` gives a list, also at no such position."""
    for position, step in enumerate(path):
        if step is ALL:
            return _all(document, path[position + 1 :])
        if isinstance(step, str):
            if not isinstance(document, dict) or step not in document:
                return MISSING
            document = document[step]
        else:
            if not isinstance(document, list):
                return MISSING
            if not -len(document) <= step < len(document):
                return [] if ALL in path[position:] else MISSING
            document = document[step]
    return document


def _all(document: Any, path: tuple[str | int | None, ...]) -> list[Any]:
    items = list(document.values()) if isinstance(document, dict) else document if isinstance(document, list) else []
    found = [each for each in (lookup(each, path) for each in items) if each is not MISSING]
    return [each for part in found for each in part] if ALL in path else found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


_AFTER_WORD: Final = re.compile(r"[\w$]")
_AFTER_NUMBER: Final = re.compile(r"[^ \t\r\n]")
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


@lru_cache(maxsize=8)
def parsed(text: str) -> Any:
    """Returns the document; numbers with a fraction are exact. Text after it is left out. Raises `NotJson`.

    As in Flink, a space must stand before text after a number, and no letter or digit after `true`, `false` and `null`.
    """
    text = text.lstrip(" \t\r\n")
    try:
        document, end = _DECODER.raw_decode(text)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise NotJson(str(error)) from None
    if not isinstance(document, (str, dict, list)):
        follows = _AFTER_WORD if document is None or isinstance(document, bool) else _AFTER_NUMBER
        if follows.match(text, end):
            raise NotJson(f"{shown(text)} goes on after {shown(text[:end])}")
    return without_halves(document) if _HALF.search(text) else document


def without_halves(value: Any) -> Any:
    """Returns a value of JSON; halves of surrogate pairs, which are not UTF-8, are question marks, as in Flink."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [without_halves(each) for each in value]
    if isinstance(value, dict):
        return {without_halves(key): without_halves(each) for key, each in value.items()}
    return value
