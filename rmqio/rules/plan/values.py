"""Values of events: where a field is, and what is compared. The engine and the reference share these definitions."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeGuard

_MAX_NUMBER = 64
"""Longer texts are not numbers."""


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a number, also a Decimal or one of NumPy's; true and false are none."""
    return isinstance(value, (int, float, Decimal, numbers.Real)) and not isinstance(value, bool)


def text_of(value: Any) -> str | None:
    """The text of a single value, as JSON writes it, without quotes. None: it has none, as null and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (Mapping, list, tuple)):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return str(value)
    except ValueError:  # an integer of more than 4,300 digits
        return None


def number_of(value: Any) -> int | float | None:
    """The number that a value is, or that its text is; None: none, as NaN."""
    if is_number(value):
        return value if value == value else None  # NaN
    if not isinstance(value, str) or not value or len(value) > _MAX_NUMBER or value[-1] not in "0123456789.":
        return None
    digits = value[1:] if value[0] == "-" else value
    if digits.isascii() and digits.isdigit():
        return int(value)
    if not digits[0].isdigit() or digits.strip("0123456789.eE+-"):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def whole_text(text: str) -> str:
    """The text with what is no character of Unicode (a lone half of a pair) replaced: engines take UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cut(text: str, max_bytes: int) -> str:
    """The text, cut to so many bytes of UTF-8, at a character."""
    if len(text) * 4 <= max_bytes:
        return text
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= max_bytes else raw[:max_bytes].decode("utf-8", "ignore")


def same(left: Any, right: Any, *, ignore_case: bool = False) -> bool:
    """Whether two single values are equal: two numbers by value, else by their texts."""
    if is_number(left) and is_number(right):
        return left == right
    one, other = text_of(left), text_of(right)
    if one is None or other is None:
        return False
    return one.casefold() == other.casefold() if ignore_case else one == other


def flat(value: Any) -> Iterator[Any]:
    """The single values in a value: of a list its members, at any depth; objects have none."""
    if not isinstance(value, (list, tuple)):
        if not isinstance(value, Mapping):
            yield value
        return
    rest = [iter(value)]
    while rest:
        for each in rest[-1]:
            if isinstance(each, (list, tuple)):
                rest.append(iter(each))
                break
            if not isinstance(each, Mapping):
                yield each
        else:
            rest.pop()


def everything(event: Any) -> Iterator[Any]:
    """The single values anywhere in an event, in order."""
    rest = [iter((event,))]
    while rest:
        for each in rest[-1]:
            if isinstance(each, Mapping):
                rest.append(iter(each.values()))
                break
            if isinstance(each, (list, tuple)):
                rest.append(iter(each))
                break
            yield each
        else:
            rest.pop()


def values_at(event: Any, path: str) -> list[Any] | None:
    """The values that a path leads to, one for each object of a list on the way; None: the event has no such field.

    The whole path is tried first, as one name; then its longest beginning that is a name of the event, and so on.
    """
    if isinstance(event, Mapping):
        if path in event:
            return [event[path]]
        end = path.rfind(".")
        while end > 0:
            inner = event.get(path[:end])
            if isinstance(inner, (Mapping, list, tuple)):
                found = values_at(inner, path[end + 1 :])
                if found is not None:
                    return found
            end = path.rfind(".", 0, end)
        return None
    if isinstance(event, (list, tuple)):
        gathered: list[Any] | None = None
        rest = [iter(event)]
        while rest:
            for each in rest[-1]:
                if isinstance(each, (list, tuple)):
                    rest.append(iter(each))
                    break
                inner = values_at(each, path)
                if inner is not None:
                    gathered = [] if gathered is None else gathered
                    gathered += inner
            else:
                rest.pop()
        return gathered
    return None
