"""Conditions on properties as SQL92, which a broker with `enablePropertyFilter` tests.

A selector is true for each message for which the condition is true. It says less where the broker's semantics differ:

- All properties are text. The broker compares text only for equality: of other conditions on a property remains that
  it is there.
- It compares numbers as DOUBLE. `TRY_CAST` cuts off a fraction, so that its bounds are one further out. A `CAST` stays
  here: its bad rows are not the broker's to drop.
- A selector that does not compile gives all messages: only names and texts that its grammar is sure to take go into it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from rmqio.model import TAGS
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, Is, Logical, Membership, Not, Operation
from rmqio.sql.types import INTEGERS

_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
_KEYWORDS: Final = frozenset(
    {
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "LIKE",
        "ESCAPE",
        "XPATH",
        "XQUERY",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    }
)
_LINKED: Final = re.compile(r" (?:AND|OR) ")
_LARGEST: Final = 10**15
_TINY: Final = Decimal("0.000001")
_LONGEST: Final = 2000
"""Characters of a selector, which travels with each request."""
_MOST_VALUES: Final = 64
_STRICT: Final = ("=", "<>", "<", "<=", ">", ">=", "LIKE", "RLIKE", "REGEXP", "SIMILAR TO")
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Metadata = Callable[[Expr], str]


@dataclass(frozen=True, slots=True)
class Selector:
    """An expression of SQL92 for the broker.

    Attributes:
      text: the expression.
      is_or: its outermost operator is OR.
      is_of_tags: it tests tags only.
      loose: the expression without bounds of numbers, which is true of more.
      bounded: the properties that it compares with numbers. A broker drops a message where one of them is no number,
        whatever the rest of the expression says.
      numbers: the properties that are numbers wherever the expression is true.
    """

    text: str
    is_or: bool = False
    is_of_tags: bool = False
    loose: str = ""
    bounded: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()

    def or_(self, other: Selector) -> Selector | None:
        """Returns what is true where one of them is; None: it would be too long."""
        return self if self == other else _joined([self, other], "OR")


def selector_of(condition: Expr, metadata: Metadata) -> Selector | None:
    """Returns what the condition implies for the broker; None: nothing.

    Args:
      condition: on the columns of a table.
      metadata: returns the metadata that a column is, or an empty text.
    """
    if isinstance(condition, Is) and condition.value is True:
        return selector_of(condition.operand, metadata)
    if not isinstance(condition, Logical):
        return _atom(condition, metadata)
    parts = [selector_of(each, metadata) for each in condition.operands]
    known = [each for each in parts if each is not None]
    if condition.operator == "OR" and len(known) < len(parts):
        return None
    return _joined(known, condition.operator)


def _joined(parts: list[Selector], operator: str) -> Selector | None:
    parts = list(dict.fromkeys(parts))
    is_or = operator == "OR"
    bounded = frozenset[str]().union(*(each.bounded for each in parts))
    if is_or and not all(bounded <= each.numbers for each in parts):
        # Another part can be true if a bounded property is no number.
        parts = list(dict.fromkeys(Selector(each.loose, each.is_or, each.is_of_tags, each.loose) for each in parts))
        bounded = frozenset()
    if len(parts) < 2:
        return parts[0] if parts else None
    text, loose = (
        f" {operator} ".join(
            f"({each})" if part.is_or != is_or and _LINKED.search(each) else each
            for part, each in zip(parts, texts, strict=True)
        )
        for texts in ([each.text for each in parts], [each.loose for each in parts])
    )
    if len(text) > _LONGEST:
        return None if is_or else parts[0]
    numbers = [each.numbers for each in parts]
    return Selector(
        text,
        is_or,
        all(each.is_of_tags for each in parts),
        loose,
        bounded,
        frozenset.intersection(*numbers) if is_or else frozenset[str]().union(*numbers),
    )


def _atom(condition: Expr, metadata: Metadata) -> Selector | None:
    text: str | None = None
    match condition:
        case Is(value=None):
            name = _property(condition.operand, metadata)
            text = name and f"{name} IS NULL"
        case Not(operand=Is(value=None) as inner):
            name = _property(inner.operand, metadata)
            text = name and f"{name} IS NOT NULL"
        case Not(operand=Membership() as inner):
            text = _membership(inner, "NOT IN", metadata)
        case Membership():
            text = _membership(condition, "IN", metadata)
        case Operation() if condition.name in _STRICT:
            return _comparison(condition, metadata)
    return None if text is None else _exact(text)


def _exact(text: str) -> Selector:
    """A selector without bounds of numbers."""
    return Selector(text, is_of_tags=text.startswith(f"{TAGS} "), loose=text)


def _property(expression: Expr, metadata: Metadata) -> str | None:
    """The name of the property that is meant; None: it is none, or cannot be named."""
    if isinstance(expression, InputRef):
        return TAGS if metadata(expression) == "tags" else None
    if not isinstance(expression, Operation) or expression.name != "ITEM OF MAP":
        return None
    properties, key = expression.arguments
    if metadata(properties) != "properties" or not isinstance(key, Constant) or not isinstance(key.value, str):
        return None
    name = key.value
    return name if _NAME.fullmatch(name) and name.upper() not in _KEYWORDS else None


def _membership(condition: Membership, operator: str, metadata: Metadata) -> str | None:
    name = _property(condition.operand, metadata)
    values = [each.value for each in condition.values if each.value is not None]
    texts = [_text(each) for each in values]
    if name is None or not values or len(values) > _MOST_VALUES or None in texts:
        return name and f"{name} IS NOT NULL"
    return f"{name} {operator} ({', '.join(map(str, texts))})"


def _comparison(condition: Operation, metadata: Metadata) -> Selector | None:
    left, right = condition.arguments[:2]
    name = condition.name
    if isinstance(left, Constant):
        left, right, name = right, left, _FLIPPED.get(name, name)
    found = _property(left, metadata)
    if found is not None:
        text = _text(right.value) if isinstance(right, Constant) else None
        if name in ("=", "<>") and text is not None:
            return _exact(f"{found} {name} {text}")
        return _exact(f"{found} IS NOT NULL")
    return _number(left, name, right, metadata)


def _number(left: Expr, name: str, right: Expr, metadata: Metadata) -> Selector | None:
    """Bounds of TRY_CAST(property AS a number)."""
    slack: int = 0
    while isinstance(left, Conversion):
        kind = left.type.kind
        if kind not in (*INTEGERS, "DECIMAL", "DOUBLE"):
            return None
        slack += int(kind != "DOUBLE")
        found = _property(left.operand, metadata)
        if found is not None:
            return _bounds(found, left.is_try, name, right, slack)
        left = left.operand
    return None


def _bounds(name: str, is_try: bool, operator: str, right: Expr, slack: int) -> Selector:
    there = _exact(f"{name} IS NOT NULL")
    if not is_try or not isinstance(right, Constant) or operator not in ("=", "<", "<=", ">", ">="):
        return there
    value: Any = right.value
    if not isinstance(value, (int, float, Decimal)) or not -_LARGEST < value < _LARGEST:
        return there
    exact = Decimal(repr(value) if isinstance(value, float) else value)
    # The broker does not parse 0.0.
    low, high = (format(each or loose, "f") for each, loose in ((exact - slack, -_TINY), (exact + slack, _TINY)))
    tests = []
    if operator in ("=", ">", ">="):
        tests.append(f"{name} >= {_floating(low)}")
    if operator in ("=", "<", "<="):
        tests.append(f"{name} <= {_floating(high)}")
    return Selector(" AND ".join(tests), loose=there.text, bounded=frozenset({name}), numbers=frozenset({name}))


def _floating(text: str) -> str:
    return text if "." in text else f"{text}.0"


def _text(value: Any) -> str | None:
    """The text as a literal; None: it has a character that could mean something else there."""
    if not isinstance(value, str) or not value or not value.isprintable() or "'" in value or "\\" in value:
        return None
    return f"'{value}'"
