"""The meaning of rules, as plainly as can be: a walk of the tree for each event. The engines are tested beside it.

It is slow, and it knows no bound on the work. `find` looks for a regular expression in a text; the default is that of
`re`, which backtracks: give it trusted rules only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any

from rmqio.rules.ir import FIELD_KINDS, Atom, Condition, Kind, Not, Or, Rule
from rmqio.rules.limits import Limits
from rmqio.rules.plan.atoms import ORDER_KINDS
from rmqio.rules.plan.values import (
    cut,
    folded,
    is_number,
    leaves_at,
    number_of,
    related,
    same,
    text_of,
    whole_text,
)
from rmqio.rules.plan.wildcards import matches, parts_of

Find = Callable[[str, str, str], bool]


def find_by_re(pattern: str, flags: str, text: str) -> bool:
    """Whether `re` finds a pattern."""
    number = re.ASCII
    for flag in flags:
        number |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[flag]
    return re.search(pattern, text, number) is not None


def matching(
    rules: Iterable[Rule], event: Mapping[str, Any], *, limits: Limits | None = None, find: Find = find_by_re
) -> list[Rule]:
    """Returns the rules that an event matches, in their order."""
    bounds = limits or Limits()
    return [rule for rule in rules if holds(rule.condition, event, limits=bounds, find=find)]


def holds(condition: Condition, event: Mapping[str, Any], *, limits: Limits, find: Find = find_by_re) -> bool:
    """Whether an event meets a condition."""
    if isinstance(condition, Atom):
        return meets(condition, event, limits=limits, find=find)
    if isinstance(condition, Not):
        return not holds(condition.condition, event, limits=limits, find=find)
    found = (holds(each, event, limits=limits, find=find) for each in condition.conditions)
    return any(found) if isinstance(condition, Or) else all(found)


def meets(atom: Atom, event: Mapping[str, Any], *, limits: Limits, find: Find = find_by_re) -> bool:
    """Whether a value of the field meets the atom."""
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


def _meets(atom: Atom, value: Any, find: Find) -> bool:
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
