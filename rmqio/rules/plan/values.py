"""Values of events: where a field is, and what is compared. The engine and the reference share these definitions."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any, Final, TypeGuard

from rmqio.rules.ir import Kind

_MAX_NUMBER: Final = 64
"""Longer texts are not numbers."""
_NONE_LEFT: Final = object()
_OWN_SMALL_LETTERS: Final = "\u0130\u212a"
"""Characters that `str.lower` makes two of, and one of ASCII: the dotted I, the sign of Kelvin."""
_LOWERED_ALONE: Final = f"{_OWN_SMALL_LETTERS}\u03a3"
"""And the Sigma, whose small letter depends on what is around it."""


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


def folded(text: str) -> str:
    """The text in small letters, one for each character: those of `str.lower`.

    Unicode's folding would make two letters of one, so that `?` is no longer a character, and letters of ASCII of some
    others, such as the long s: a name that differs would pass for one that a filter leaves out.
    """
    if text.isascii() or not any(each in text for each in _LOWERED_ALONE):
        return text.lower()
    return "".join([each if each in _OWN_SMALL_LETTERS else each.lower() for each in text])


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
    return folded(one) == folded(other) if ignore_case else one == other


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


def values_at(
    event: Any, path: str, start: Callable[[], Iterator[Any]] | None = None, steps: Iterator[Any] | None = None
) -> list[Any] | None:
    """The values that a path leads to, one for each object of a list on the way; None: the event has no such field.

    The whole path is tried first, as one name; then its longest beginning that is a name of the event, and so on.

    Args:
      start: returns steps, of which one is taken for each member of a list on the way: when there is none, the others
        are not looked at. None: there is no bound.
      steps: those that are left.
    """
    if isinstance(event, Mapping):
        if path in event:
            return [event[path]]
        end = path.rfind(".")
        while end > 0:
            inner = event.get(path[:end])
            if isinstance(inner, (Mapping, list, tuple)):
                found = values_at(inner, path[end + 1 :], start, steps)
                if found is not None:
                    return found
            end = path.rfind(".", 0, end)
        return None
    if isinstance(event, (list, tuple)):
        if steps is None and start is not None:
            steps = start()
        gathered: list[Any] | None = None
        rest = [iter(event)]
        while rest:
            for each in rest[-1]:
                if isinstance(each, (list, tuple)):
                    rest.append(iter(each))
                    break
                if steps is not None and next(steps, _NONE_LEFT) is _NONE_LEFT:
                    return gathered
                inner = values_at(each, path, start, steps)
                if inner is not None:
                    gathered = [] if gathered is None else gathered
                    gathered += inner
            else:
                rest.pop()
        return gathered
    return None


def leaves_at(event: Any, field: str | None, most: int) -> list[Any] | None:
    """The single values of a field, or of an event, at most so many; None: there is no such field."""
    if field is None:
        return list(islice(everything(event), most))
    values = values_at(event, field, lambda: iter(range(most)))
    return None if values is None else list(islice(flat(values), most))


def related(kind: Kind, left: Any, right: Any, *, ignore_case: bool) -> bool:
    """Whether a single value is as a comparison of two fields says."""
    if kind is Kind.FIELD:
        return same(left, right, ignore_case=ignore_case)
    one, other = text_of(left), text_of(right)
    if one is None or other is None:
        return False
    if ignore_case:
        one, other = folded(one), folded(other)
    if kind is Kind.CONTAINS_FIELD:
        return other in one
    return one.startswith(other) if kind is Kind.STARTS_WITH_FIELD else one.endswith(other)
