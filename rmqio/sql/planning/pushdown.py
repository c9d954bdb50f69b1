"""Finds what a read can leave to the broker: tags, properties and store times that WHERE implies.

A condition on a table becomes a weaker one that the broker, or the position of the read, can test: it is true for each
row for which the condition is true. The condition itself is tested again here. A read that several statements share
gets what all of them imply.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from rmqio.model import MessageFilter
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, Is, Logical, Membership, Operation
from rmqio.sql.planning.plan import Calc, Relation, Scan, Union
from rmqio.sql.planning.selectors import Selector, selector_of
from rmqio.sql.recursion import deep_trees
from rmqio.sql.types import TIMESTAMPS

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
