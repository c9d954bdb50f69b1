"""The meaning of conditions, as plainly as can be: of one on an event. The engines are tested beside it. It is slow."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from typing import Any

from rmqio.rules.errors import Limits
from rmqio.rules.ir import FIELD_KINDS, Atom, Kind
from rmqio.rules.match.atoms import (
    ORDER_KINDS,
    cut,
    folded,
    is_number,
    leaves_at,
    matches,
    number_of,
    parts_of,
    related,
    same,
    text_of,
    whole_text,
)

Find = Callable[[str, str, str], bool]


def meets(atom: Atom, event: Mapping[str, Any], *, limits: Limits, find: Find | None = None) -> bool:
    """Whether a value of the field meets the atom. `find` looks for a regular expression, with flags, in a text."""
    if atom.kind is Kind.SQL:
        from rmqio.rules.where import sql_predicate  # type: ignore[import-not-found,unused-ignore]

        return bool(sql_predicate(str(atom.value))(dict(event)))
    values = _values(atom.field, event, limits)
    if values is None:
        return False
    if atom.kind is Kind.EXISTS:
        return True
    if atom.kind in FIELD_KINDS:
        pairs: Iterator[tuple[Any, Any]] = product(values, _values(str(atom.value), event, limits) or [])
        if atom.kind is not Kind.FIELD:
            pairs = islice(pairs, limits.max_values)
        return any(related(atom.kind, one, other, ignore_case=atom.ignore_case) for one, other in pairs)
    return any(_meets(atom, value, find) for value in values)


def _values(field: str | None, event: Mapping[str, Any], limits: Limits) -> list[Any] | None:
    found = leaves_at(event, field, limits.max_values)
    if found is None:
        return None
    return [whole_text(cut(leaf, limits.max_value_bytes)) if isinstance(leaf, str) else leaf for leaf in found]


def _meets(atom: Atom, value: Any, find: Find | None) -> bool:
    kind, wanted = atom.kind, atom.value
    if kind is Kind.IS_NULL:
        return value is None
    if kind is Kind.EQUALS:
        return same(value, wanted, ignore_case=atom.ignore_case and not is_number(wanted))
    if kind in ORDER_KINDS:
        return _is_ordered(kind, value, wanted)
    text = text_of(value)
    if text is None:
        return False
    if kind is Kind.CIDR:
        try:
            return ipaddress.ip_address(text) in ipaddress.ip_network(str(wanted), strict=False)
        except ValueError:
            return False
    sought = text_of(wanted) or ""
    if kind is Kind.REGEX:
        assert find is not None
        return find(sought, atom.flags + ("i" if atom.ignore_case and "i" not in atom.flags else ""), text)
    if atom.ignore_case:
        text, sought = folded(text), folded(sought)
    if kind is Kind.CONTAINS:
        return sought in text
    if kind is Kind.STARTS_WITH:
        return text.startswith(sought)
    if kind is Kind.ENDS_WITH:
        return text.endswith(sought)
    return matches(parts_of(sought), text)


def _is_ordered(kind: Kind, value: Any, wanted: Any) -> bool:
    """Numbers by value, also those in texts; texts by their characters."""
    left = number_of(value) if is_number(wanted) else value
    if left is None or not (is_number(wanted) or isinstance(left, str)):
        return False
    if kind is Kind.LESS:
        return bool(left < wanted)
    if kind is Kind.AT_MOST:
        return bool(left <= wanted)
    if kind is Kind.GREATER:
        return bool(left > wanted)
    return bool(left >= wanted)
