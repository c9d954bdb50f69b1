"""CREATE TABLE, where it needs its expressions bound: computed columns and the watermark."""

from __future__ import annotations

from rmqio.sql import formats, types
from rmqio.sql.analysis.joins.dimensions import require_no_metadata
from rmqio.sql.analysis.queries import scan_of
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.analysis.values.binder import ExpressionBinder
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import Constant, Expr, InputRef, Operation
from rmqio.sql.planning.plan import Field, LookupJoin, Relation, Scan
from rmqio.sql.syntax import nodes


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
