"""The meaning of conditions, as plainly as can be: a walk of the tree for an event."""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Mapping
from typing import Any

from rmqio.rules.field_values import members, number_of, text_of
from rmqio.rules.ir import Atom, Condition, Kind, Not, Or

_ORDER = {
    Kind.LESS: operator.lt, Kind.AT_MOST: operator.le, Kind.GREATER: operator.gt, Kind.AT_LEAST: operator.ge,
}  # fmt: skip


def holds(condition: Condition, event: Mapping[str, Any]) -> bool:
    """Whether an event meets a condition."""
    if isinstance(condition, Atom):
        return _meets(condition, event)
    if isinstance(condition, Not):
        return not holds(condition.condition, event)
    found = (holds(each, event) for each in condition.conditions)
    return any(found) if isinstance(condition, Or) else all(found)


def _meets(atom: Atom, event: Mapping[str, Any]) -> bool:
    if atom.kind is Kind.SQL:
        from rmqio.rules.where import sql_predicate

        return sql_predicate(str(atom.value))(event)
    values = _everything(event) if atom.field is None else members(event, atom.field)
    if atom.kind is Kind.EXISTS:
        return bool(values)
    if atom.kind is Kind.FIELD:
        others = members(event, str(atom.value))
        return any(_same(one, other, atom.ignore_case) for one in values for other in others)
    return any(_value_meets(atom, value) for value in values)


def _everything(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [each for inner in value.values() for each in _everything(inner)]
    return [each for inner in value for each in _everything(inner)] if isinstance(value, list) else [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(left: Any, right: Any, ignore_case: bool) -> bool:
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    one, other = text_of(left), text_of(right)
    if one is None or other is None:
        return False
    return one.casefold() == other.casefold() if ignore_case else one == other


def _value_meets(atom: Atom, value: Any) -> bool:
    wanted = atom.value
    if atom.kind is Kind.IS_NULL:
        return value is None
    if atom.kind is Kind.EQUALS:
        return _same(value, wanted, atom.ignore_case)
    if atom.kind in _ORDER:
        number = number_of(value)
        return number is not None and bool(_ORDER[atom.kind](number, wanted))  # type: ignore[arg-type]
    text = text_of(value)
    if text is None:
        return False
    if atom.kind is Kind.CIDR:
        try:
            return ipaddress.ip_address(text) in ipaddress.ip_network(str(wanted))
        except ValueError:
            return False
    sought = str(wanted)
    if atom.kind is Kind.REGEX:
        flags = [{"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[each] for each in atom.flags]
        return re.search(sought, text, sum(flags)) is not None
    if atom.ignore_case:
        text, sought = text.casefold(), sought.casefold()
    if atom.kind is Kind.WILDCARD:
        tokens = re.findall(r"\\[*?\\]|.", sought, re.DOTALL)
        parts = [{"*": ".*", "?": "."}.get(each) or re.escape(each[-1]) for each in tokens]
        return re.fullmatch("".join(parts), text, re.DOTALL) is not None
    return {
        Kind.CONTAINS: sought in text,
        Kind.STARTS_WITH: text.startswith(sought),
        Kind.ENDS_WITH: text.endswith(sought),
    }[atom.kind]
