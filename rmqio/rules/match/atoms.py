"""The meaning of a condition of a field: what is compared of an event, and one form for equal ones."""

from __future__ import annotations

import ipaddress
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, Final, TypeGuard

from rmqio.rules.errors import Limits
from rmqio.rules.ir import FIELD_KINDS, Atom, Kind

# Values of events: where a field is, and what is compared. The engine and the reference share these definitions.

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


# Wildcards: `*` is any text, `?` one character; a backslash before either, or before a backslash, the character.


class Wild(Enum):
    """A part of a wildcard that is not text."""

    ANY = "*"
    ONE = "?"


Part = str | Wild
_SPECIAL: Final = "*?\\"


def parts_of(pattern: str) -> list[Part]:
    """Texts and wildcards in order; several `*` in a row are one."""
    parts: list[Part] = []
    text: list[str] = []
    at = 0
    while at < len(pattern):
        each = pattern[at]
        if each == "\\" and at + 1 < len(pattern) and pattern[at + 1] in _SPECIAL:
            text.append(pattern[at + 1])
            at += 2
            continue
        at += 1
        if each not in "*?":
            text.append(each)
            continue
        if text:
            parts.append("".join(text))
            text = []
        wild = Wild(each)
        if not (wild is Wild.ANY and parts and parts[-1] is Wild.ANY):
            parts.append(wild)
    if text:
        parts.append("".join(text))
    return parts


def matches(parts: list[Part], text: str) -> bool:
    """Whether the parts are the whole text. The work is bounded by the product of both lengths: no backtracking.

    A `*` takes as little as it can: what fits after the last one fits after any earlier one, too.
    """
    at, position = 0, 0
    after_any, from_position = -1, 0
    while True:
        part = parts[at] if at < len(parts) else None
        if part is Wild.ANY:
            at += 1
            after_any, from_position = at, position
            if at == len(parts):
                return True
            continue
        if part is None:
            if position == len(text):
                return True
        elif part is Wild.ONE:
            if position < len(text):
                at, position = at + 1, position + 1
                continue
        elif text.startswith(part, position):
            at, position = at + 1, position + len(part)
            continue
        if after_any < 0 or from_position >= len(text):
            return False
        from_position += 1
        first = parts[after_any]
        if isinstance(first, str):
            from_position = text.find(first, from_position)
            if from_position < 0:
                return False
        at, position = after_any, from_position


# Values of fields, for expressions and correlations, as the engine sees them.


def members(event: Any, path: str) -> list[Any]:
    """Returns the single values of a field: the members of a list at any depth. Objects have none."""
    return [each for value in values_at(event, path) or () for each in flat(value)]


ORDER_KINDS: Final = frozenset({Kind.LESS, Kind.AT_MOST, Kind.GREATER, Kind.AT_LEAST})
_NO_VALUE: Final = frozenset({Kind.EXISTS, Kind.IS_NULL})
_OF_A_FIELD: Final = _NO_VALUE | FIELD_KINDS


class BadAtom(ValueError):
    """A condition that cannot be used. The text is the reason."""


def canonical(atom: Atom, limits: Limits) -> Atom:
    """Returns an atom that matches the same values, in the one form for it. Raises `BadAtom`."""
    kind, value = atom.kind, atom.value
    if kind is Kind.SQL:
        if not isinstance(value, str) or not value.strip():
            raise BadAtom("an expression of SQL must be a text")
        return Atom(None, kind, value)
    field = _field(atom, limits)
    if kind in _NO_VALUE:
        return Atom(field, kind)
    if kind in FIELD_KINDS:
        if not isinstance(value, str) or not value:
            raise BadAtom(f"a condition on {field!r} must name another field, not {value!r}")
        return Atom(field, kind, value, atom.ignore_case)
    if value is None:
        raise BadAtom(f"{kind} of {name_of(field)} needs a value; for null, use {Kind.IS_NULL}")
    if kind is Kind.CIDR:
        return Atom(field, kind, _network(field, value))
    if kind in ORDER_KINDS:
        if isinstance(value, bool) or (isinstance(value, float) and math.isnan(value)):
            raise BadAtom(f"{kind} of {name_of(field)} is {value!r}; it must be a number or a text")
        return Atom(field, kind, whole_text(value) if isinstance(value, str) else value)
    if kind is Kind.EQUALS and is_number(value):
        if isinstance(value, float) and math.isnan(value):
            raise BadAtom(f"{kind} of {name_of(field)} is NaN, which equals nothing")
        return Atom(field, kind, value)
    text = text_of(value)
    if text is None:
        raise BadAtom(f"{kind} of {name_of(field)} is {type(value).__name__}; it must be a text")
    text = whole_text(text)
    if len(text.encode()) > limits.max_pattern_bytes:
        raise BadAtom(f"{kind} of {name_of(field)} has {len(text.encode()):,} bytes; max_pattern_bytes is "
                      f"{limits.max_pattern_bytes:,}")  # fmt: skip
    if kind is Kind.REGEX:
        flags = "".join(sorted({*atom.flags} | ({"i"} if atom.ignore_case else set())))
        if unknown := {*flags} - {*"ims"}:
            raise BadAtom(
                f"a regular expression of {name_of(field)} has the flag {min(unknown)!r}; there are i, m and s"
            )
        return Atom(field, kind, text, "i" in flags, flags)
    if atom.ignore_case:
        text = folded(text)
    if kind is Kind.WILDCARD:
        return _wildcard(field, text, limits, ignore_case=atom.ignore_case)
    if not text and kind is not Kind.EQUALS:
        return Atom(field, Kind.STARTS_WITH, "")  # any text
    return Atom(field, kind, text, atom.ignore_case)


def condition_text(atom: Atom) -> str:
    """The condition as a hit names it: what the field was compared with, and how."""
    if atom.value is None or atom.kind is Kind.SQL:
        return str(atom.kind) if atom.value is None else f"{atom.kind} {atom.value}"
    return f"{atom.kind} {text_of(atom.value)}"


def _field(atom: Atom, limits: Limits) -> str | None:
    field = atom.field
    if field is None:
        if atom.kind in _OF_A_FIELD:
            raise BadAtom(f"{atom.kind} needs a field")
        return None
    if not isinstance(field, str) or not field:
        raise BadAtom(f"{field!r} is not the name of a field")
    for name in (field, atom.value if atom.kind in FIELD_KINDS else ""):
        if isinstance(name, str) and name.count(".") >= limits.max_field_names:
            raise BadAtom(f"the field {name[:40]!r} has {name.count('.') + 1} names; max_field_names is "
                          f"{limits.max_field_names}")  # fmt: skip
    return field


def _network(field: str | None, value: object) -> str:
    if not isinstance(value, str):
        raise BadAtom(f"cidr of {name_of(field)} is {value!r}; it must be a text such as '10.0.0.0/8'")
    try:
        return str(ipaddress.ip_network(value.strip(), strict=False))
    except ValueError as error:
        raise BadAtom(f"cidr of {name_of(field)}: {error}") from error


def _wildcard(field: str | None, text: str, limits: Limits, *, ignore_case: bool) -> Atom:
    """The simplest kind that says the same."""
    parts = parts_of(text)
    wild = sum(isinstance(part, Wild) for part in parts)
    if wild > limits.max_wildcards:
        raise BadAtom(f"a wildcard of {name_of(field)} has {wild} `*` and `?`; max_wildcards is {limits.max_wildcards}")
    match parts:
        case []:
            return Atom(field, Kind.EQUALS, "", ignore_case)
        case [str(only)]:
            return Atom(field, Kind.EQUALS, only, ignore_case)
        case [Wild.ANY]:
            return Atom(field, Kind.STARTS_WITH, "")
        case [str(head), Wild.ANY]:
            return Atom(field, Kind.STARTS_WITH, head, ignore_case)
        case [Wild.ANY, str(tail)]:
            return Atom(field, Kind.ENDS_WITH, tail, ignore_case)
        case [Wild.ANY, str(inner), Wild.ANY]:
            return Atom(field, Kind.CONTAINS, inner, ignore_case)
    return Atom(field, Kind.WILDCARD, text, ignore_case)


def name_of(field: str | None) -> str:
    """A field in an error."""
    return "any field" if field is None else repr(field)
