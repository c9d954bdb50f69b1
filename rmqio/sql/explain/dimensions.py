"""EXPLAIN of dimension tables, and of tables that are not topics."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.constant_text import duration
from rmqio.sql.expressions import Expr, conjuncts
from rmqio.sql.planning.plan import Calc, LookupJoin, Relation, Scan
from rmqio.sql.secret_options import masked_value
from rmqio.sql.text import text_of


def place_of(table: Table) -> str:
    """Returns what a table is: `topic orders, json`. No credentials."""
    options = table.options
    match options.connector:
        case "rocketmq":
            return f"topic {options.topic}, {options.format}"
        case connector if connector == FILES:
            return f"files {masked_value(options.of_connector.path, 'path')}, {options.format}"
        case connector if connector == DATABASE:
            from rmqio.sql.lookup.database import place_of as in_database

            return in_database(options.of_connector)
    return options.connector


def look_up_lines(join: LookupJoin) -> list[str]:
    """Returns the lines of a look-up: the table, the key, what is kept of it, and how old it can be."""
    left = [each.name for each in join.input.fields]
    right = _names(join.dimension)
    relation, conditions = join.dimension, _conditions(join)
    while isinstance(relation, Calc):
        relation = relation.input
    assert isinstance(relation, Scan)
    table = relation.table
    keys = " and ".join(f"{text_of(key, left)} = {right[place]}" for key, place in join.keys)
    lines = [f"Look up in {table.name} ({place_of(table)}), {join.kind.lower()}, append-only", f"by {keys}"]
    lines += [f"where {text_of(each, [*left, *right])}" for each in conjuncts(join.residual)]
    kept = ", ".join(right)
    count = sum(each.expression is None for each in table.columns)
    lines.append(f"each worker keeps {kept} (reads {len(relation.columns)} of {count} columns)")
    lines += [f"only rows where {each}" for each in conditions]
    refresh_ms = table.options.of_connector.refresh_ms
    if table.options.connector not in (FILES, DATABASE):
        lines.append(f"the newest row of each {', '.join(table.primary_key)}, from the start of the topic")
    elif refresh_ms:
        lines.append(f"is loaded again every {duration(refresh_ms)}")
    else:
        lines.append("is loaded once")
    return lines


def _names(relation: Relation) -> list[str]:
    """The columns of a dimension as text: a key that is computed is what computes it."""
    if not isinstance(relation, Calc):
        return [each.name for each in relation.fields]
    below = _names(relation.input)
    return [
        text_of(each, below) if field.name.startswith("KEY$") else field.name
        for field, each in zip(relation.fields, relation.projections, strict=True)
    ]


def _conditions(join: LookupJoin) -> list[str]:
    """The filters of the dimension's rows, as text."""
    found: list[str] = []
    relation = join.dimension
    while isinstance(relation, Calc):
        names = [each.name for each in relation.input.fields]
        found = [*_texts(conjuncts(relation.condition), names), *found]
        relation = relation.input
    return found


def _texts(conditions: Sequence[Expr], names: Sequence[str]) -> list[str]:
    return [text_of(each, names) for each in conditions]
