"""CREATE TABLE and CREATE FUNCTION: computed columns, the watermark, and what calls of such functions mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from rmqio.sql import formats, types
from rmqio.sql.analysis import binder as expressions
from rmqio.sql.analysis import functions, windows
from rmqio.sql.analysis.aggregates import AGGREGATES
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.analysis.functions import AUXILIARY
from rmqio.sql.analysis.joins import require_no_metadata
from rmqio.sql.analysis.queries import scan_of
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.catalog.tables import Catalog, Table
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Constant, Expr, InputRef, Operation
from rmqio.sql.functions import registry
from rmqio.sql.planning.plan import Field, LookupJoin, Relation, Scan
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.user.definition import UserFunction
from rmqio.sql.user.functions import function_of

# CREATE FUNCTION, and what calls of such functions mean: they are found once, before anything else is looked at.
#
# So the expressions of tables and views keep the function that they were written with, wherever they are planned.

T = TypeVar("T")


def create(catalog: Catalog, statement: statements.CreateFunction, folders: Sequence[str]) -> None:
    """Adds a function. Raises `Refusal` if the name is taken, or the function is none that SQL can call."""
    name = statement.name.text.upper()
    if catalog.function_named(name) is not None:
        if statement.if_not_exists:
            return
        raise Refusal(f"there is a function {statement.name} already", statement.name.span)
    if _is_built_in(name):
        raise Refusal(f"{name} is a function of SQL: choose another name", statement.name.span)
    catalog.functions[statement.name.text] = function_of(statement, folders)


def _is_built_in(name: str) -> bool:
    return (
        name in registry.load()
        or name in AGGREGATES
        or name in functions.SPECIAL
        or name in expressions.WITHOUT_PARENTHESES
        or name in windows.WINDOW_FUNCTIONS
        or name in AUXILIARY
        or name in ("DESCRIPTOR", "UNNEST", "GROUPING")
    )


def resolved(node: T, functions: Mapping[str, UserFunction]) -> T:
    """Returns the part of a statement, where calls of the user's functions have them."""
    by_name = {name.upper(): each for name, each in functions.items()}
    return _resolved(node, by_name, tuple(functions)) if functions else node


def _resolved(node: Any, functions: Mapping[str, UserFunction], known: tuple[str, ...]) -> Any:
    if isinstance(node, tuple):
        found = [_resolved(each, functions, known) for each in node]
        return node if all(new is old for new, old in zip(found, node, strict=True)) else tuple(found)
    if not isinstance(node, nodes.Node):
        return node
    changes: dict[str, Any] = {}
    for each in fields(node):
        before = getattr(node, each.name)
        if isinstance(before, (tuple, nodes.Node)):
            after = _resolved(before, functions, known)
            if after is not before:
                changes[each.name] = after
    if isinstance(node, nodes.Call):
        changes |= {"function": functions.get(node.name.text.upper()), "known": known}
    return replace(node, **changes) if changes else node


def check_table(table: Table) -> None:
    """Raises `Refusal` if the format does not fit the columns, or a computed column or the watermark is not valid."""
    require_no_metadata(table)
    formats.check(table)
    if any(each.expression is not None for each in table.columns):
        scan_of(table)
    if table.watermark is not None:
        watermark_delay_ms(table)


def check_scans(relation: Relation) -> None:
    """Raises `Refusal` if the schema of a table that the relation reads does not fit the columns that it needs."""
    if isinstance(relation, Scan):
        body = [Field(each.name, each.type) for each in relation.columns if each.is_physical]
        formats.require_readable(relation.table, body)
    if isinstance(relation, LookupJoin):
        check_scans(relation.dimension)
    for each in relation.inputs():
        check_scans(each)


def watermark_delay_ms(table: Table) -> int:
    """Returns by how much the watermark is behind the latest row, in milliseconds.

    Raises `Refusal` unless the watermark's expression is its column, or that minus an interval.
    """
    assert table.watermark is not None
    name, node = table.watermark
    relation = scan_of(table)
    column = next(each for each in relation.fields if each.name == name)
    if column.type.kind not in types.TIMESTAMPS:
        raise Refusal(f"the column of WATERMARK FOR must be a TIMESTAMP, but {name} is {column.type.text}", node.span)
    bound = _bound(node, relation, table)
    if isinstance(bound, InputRef) and relation.fields[bound.index].name == name:
        return 0
    if isinstance(bound, Operation) and bound.name == "TIME -":
        time, interval = bound.arguments
        if isinstance(time, InputRef) and relation.fields[time.index].name == name and isinstance(interval, Constant):
            if interval.value < 0:
                raise Refusal("the watermark would be ahead of its rows: the interval must not be negative", node.span)
            return int(interval.value) // 1000
    raise Refusal(f"a watermark must be {name}, or {name} - INTERVAL '5' SECOND", node.span)


def _bound(node: nodes.Expression, relation: Relation, table: Table) -> Expr:
    if isinstance(node, nodes.Call) and node.name.text.upper() == "WITHOFFSET" and len(node.arguments) == 2:
        time, offset = node.arguments  # Blink's: milliseconds
        if isinstance(offset, nodes.Literal) and offset.kind == "number" and offset.value.isdecimal():
            interval = nodes.Interval(offset.value, "MILLISECOND", None, False, span=offset.span)
            node = nodes.Binary("-", time, interval, span=node.span)
    return ExpressionBinder(Scope.of(relation.fields, table.name)).bind(node)
