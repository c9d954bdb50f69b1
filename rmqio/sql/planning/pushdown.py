"""Finds what a read can leave to the broker: tags, properties and store times that WHERE implies.

A condition on a table becomes a weaker one that the broker, or the position of the read, can test: it is true for each
row for which the condition is true. The condition itself is tested again here. A read that several statements share
gets what all of them imply.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar

from rmqio.model import TAGS, MessageFilter
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.expressions import (
    Constant,
    Conversion,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Not,
    Operation,
)
from rmqio.sql.planning.plan import Calc, Relation, Scan, Union
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.types import INTEGERS, TIMESTAMPS

# Conditions on properties as SQL92, which a broker with `enablePropertyFilter` tests.
#
# A selector is true for each message for which the condition is true. It says less where the broker's semantics
# differ:
#
# - All properties are text. The broker compares text only for equality: of other conditions on a property remains that
#   it is there.
# - It compares numbers as DOUBLE. `TRY_CAST` cuts off a fraction, so that its bounds are one further out. A `CAST`
#   stays here: its bad rows are not the broker's to drop.
# - A selector that does not compile gives all messages: only names and texts that its grammar is sure to take go into
#   it.

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
_FLIPPED_ORDER: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

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
        left, right, name = right, left, _FLIPPED_ORDER.get(name, name)
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


T = TypeVar("T")

MARGIN_MS: Final = 60_000
"""Store times go back when a broker's clock is set: a read begins and ends so much further out."""
_MOST_TAGS: Final = 100


class Use(NamedTuple):
    """A place of a job that reads a table, and what is tested and computed first.

    Attributes:
      scan: the columns that are read.
      condition: on them.
      projections: what is computed of them; None: nothing.
    """

    scan: Scan
    condition: Expr | None
    projections: tuple[Expr, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """Describes the messages that a read leaves out.

    Attributes:
      tags: the broker sends messages with one of them only; None: all.
      selector: in SQL92, what the broker tests of properties; None: nothing.
      start_ms, stop_ms: only messages that were stored in [start, stop) matter, in Unix milliseconds; None: no bound.
    """

    tags: frozenset[str] | None = None
    selector: Selector | None = None
    start_ms: int | None = None
    stop_ms: int | None = None

    @property
    def expression(self) -> str | None:
        """The tags as a subscription; None: all."""
        return None if self.tags is None else " || ".join(sorted(self.tags))


def uses_of(plans: Iterable[Relation]) -> list[Use]:
    """Returns each place at which the plans read a table."""
    found: list[Use] = []
    with deep_trees():
        for each in plans:
            _find(each, None, found)
    return found


def _find(relation: Relation, above: Calc | None, found: list[Use]) -> None:
    match relation:
        case Scan():
            found.append(Use(relation, None) if above is None else Use(relation, above.condition, above.projections))
        case Union():  # what follows a union is computed in its members
            for each in relation.members:
                _find(each, above, found)
        case Calc():
            _find(relation.input, relation, found)
        case _:
            for each in relation.inputs():
                _find(each, None, found)


def endless_reads(plans: Iterable[Relation]) -> list[str]:
    """Returns the tables that the plans read and that have no end of their own."""
    tables = {each.scan.table.name: each.scan.table.options for each in uses_of(plans)}
    return [name for name, each in tables.items() if each.end_ms is None and each.connector not in (FILES, DATABASE)]


def pushed_of(table: Table, uses: Sequence[Use]) -> Pushed:
    """Returns what a read of the table leaves out that all of the uses share."""
    how = table.options.push_down
    if how == "none" or not uses or (table.watermark is not None and how is None):
        return Pushed()
    with deep_trees():
        each = [_pushed(use, is_sql=how == "sql92") for use in uses]
    found = functools.reduce(_either, each)
    if found.tags is not None and not _is_expression(found.tags):
        found = replace(found, tags=None)
    own = table.options
    if own.sql is not None:
        return replace(found, tags=None, selector=None)
    if own.tag is not None:
        wanted = MessageFilter(own.tag).tag_set
        both = wanted if found.tags is None else wanted & found.tags
        return replace(found, tags=both or wanted, selector=None)
    if found.selector is None or (found.tags is not None and found.selector.is_of_tags):
        return replace(found, selector=None)
    return replace(found, tags=None)  # SQL92 has the tags, too


def _pushed(use: Use, *, is_sql: bool) -> Pushed:
    if use.condition is None:
        return Pushed()
    tags = _implied(use.condition, functools.partial(_tags, use.scan), _Sets)
    times = _implied(use.condition, functools.partial(_times, use.scan), _Ranges)
    low, high = times or (None, None)
    selector = None
    if is_sql:
        selector = selector_of(use.condition, functools.partial(_metadata, use.scan))
    return Pushed(
        tags,
        selector,
        None if low is None else low // 1000 - MARGIN_MS,
        None if high is None else high // 1000 + 1 + MARGIN_MS,
    )


def _either(one: Pushed, other: Pushed) -> Pushed:
    return Pushed(
        None if one.tags is None or other.tags is None else one.tags | other.tags,
        None if one.selector is None or other.selector is None else one.selector.or_(other.selector),
        None if one.start_ms is None or other.start_ms is None else min(one.start_ms, other.start_ms),
        None if one.stop_ms is None or other.stop_ms is None else max(one.stop_ms, other.stop_ms),
    )


def _is_expression(tags: frozenset[str]) -> bool:
    """Whether a subscription can name these tags, and nothing else."""
    return 0 < len(tags) <= _MOST_TAGS and MessageFilter(" || ".join(sorted(tags))).tag_set == tags


def _metadata(scan: Scan, expression: Expr) -> str:
    """The metadata that a column is; empty: none."""
    if not isinstance(expression, InputRef):
        return ""
    metadata = scan.columns[expression.index].metadata
    return "" if metadata is None else metadata.key


# ---- what a condition implies ---------------------------------------------------------------------------------------


class _Sets:
    """Sets of values, one of which the row has."""

    @staticmethod
    def both(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
        return one & other

    @staticmethod
    def either(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
        return one | other


Range = tuple[int | None, int | None]


class _Ranges:
    """The least and the greatest value that the row can have."""

    @staticmethod
    def both(one: Range, other: Range) -> Range:
        return _bound(max, one[0], other[0]), _bound(min, one[1], other[1])

    @staticmethod
    def either(one: Range, other: Range) -> Range:
        low = None if one[0] is None or other[0] is None else min(one[0], other[0])
        return low, None if one[1] is None or other[1] is None else max(one[1], other[1])


def _bound(of: Callable[..., int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else of(one, other)


def _implied(condition: Expr, atom: Callable[[Expr], T | None], kind: Any) -> T | None:
    """Returns what must be so where the condition is true; None: nothing is known."""
    if isinstance(condition, Is) and condition.value is True:
        return _implied(condition.operand, atom, kind)
    if not isinstance(condition, Logical):
        return atom(condition)
    parts = [_implied(each, atom, kind) for each in condition.operands]
    known: list[Any] = [each for each in parts if each is not None]
    if condition.operator == "AND":
        return functools.reduce(kind.both, known) if known else None
    return functools.reduce(kind.either, known) if len(known) == len(parts) else None


def _tags(scan: Scan, condition: Expr) -> frozenset[str] | None:
    match condition:
        case Membership() if _metadata(scan, condition.operand) == "tags":
            return frozenset(each.value for each in condition.values if each.value is not None)
        case Operation(name="=" | "IS NOT DISTINCT FROM", arguments=(left, right)):
            for column, constant in ((left, right), (right, left)):
                is_text = isinstance(constant, Constant) and isinstance(constant.value, str)
                if is_text and _metadata(scan, column) == "tags":
                    return frozenset((constant.value,))  # type: ignore[attr-defined]
    return None


_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _times(scan: Scan, condition: Expr) -> Range | None:
    """The bounds of the store time, in microseconds; whether they belong to the range is left to the margin."""
    if isinstance(condition, Membership) and _is_store_time(scan, condition.operand):
        found = [each.value for each in condition.values if each.value is not None]
        return (min(found), max(found)) if found else None
    if not isinstance(condition, Operation) or condition.name not in _FLIPPED:
        return None
    left, right = condition.arguments
    name = condition.name
    if isinstance(left, Constant):
        left, right, name = right, left, _FLIPPED[name]
    if not isinstance(right, Constant) or not isinstance(right.value, int) or not _is_store_time(scan, left):
        return None
    low = right.value if name in (">", ">=", "=") else None
    return low, right.value if name in ("<", "<=", "=") else None


def _is_store_time(scan: Scan, expression: Expr) -> bool:
    while isinstance(expression, Conversion) and expression.operand.type.kind == expression.type.kind in TIMESTAMPS:
        if expression.type.precision < expression.operand.type.precision:
            return False
        expression = expression.operand
    return _metadata(scan, expression) == "store_timestamp"
