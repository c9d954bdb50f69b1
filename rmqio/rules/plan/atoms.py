"""One form for each condition of a field, so that equal ones are one atom; and errors for those that make no sense."""

from __future__ import annotations

import ipaddress
import math
from typing import Final

from rmqio.rules.ir import FIELD_KINDS, Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.plan.values import folded, is_number, text_of, whole_text
from rmqio.rules.plan.wildcards import Wild, parts_of

TEXT_KINDS: Final = frozenset({Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.WILDCARD, Kind.REGEX})
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
