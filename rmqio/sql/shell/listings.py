"""SHOW and DESCRIBE: tables of texts about the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.analysis.functions import function_names
from rmqio.sql.analysis.queries import scan_of
from rmqio.sql.catalog.tables import Catalog, Table
from rmqio.sql.planning.plan import Field
from rmqio.sql.scripts.script import Texts
from rmqio.sql.syntax.parser import RESERVED

Listing = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The titles of columns, and rows."""


def tables(catalog: Catalog) -> Listing:
    """Returns the tables, and those that come from elsewhere; what cannot be used says so only when it is used."""
    further = () if catalog.further is None else catalog.further.names()
    return ("table",), [(each,) for each in sorted({*catalog.tables, *further})]


def views(catalog: Catalog) -> Listing:
    """Returns the views."""
    return ("view",), [(each,) for each in sorted(catalog.views)]


def functions(catalog: Catalog) -> dict[str, list[str]]:
    """Returns the functions: those that were created, if there are some, and those that SQL has."""
    created = {"created function": sorted(catalog.functions)} if catalog.functions else {}
    return {**created, "function of SQL": sorted(function_names())}


def described(fields: Sequence[Field], table: Table | None, texts: Texts) -> Listing:
    """Returns the columns of a table or a view."""
    rows: list[tuple[str, ...]] = []
    for each in fields:
        column = None if table is None else table.column(each.name)
        more = []
        if table is not None and each.name in table.primary_key:
            more.append("PRIMARY KEY")
        if column is not None and column.metadata is not None:
            more.append(f"METADATA FROM '{column.metadata.key}'" + (" VIRTUAL" if column.is_virtual else ""))
        if column is not None and column.expression is not None:
            more.append(f"AS {texts.text_of(column.expression.span)}")
        if table is not None and table.watermark is not None and table.watermark[0] == each.name:
            more.append(f"WATERMARK AS {texts.text_of(table.watermark[1].span)}")
        rows.append((each.name, each.type.text, "" if each.type.is_nullable else "NOT NULL", ", ".join(more)))
    return ("column", "type", "null", "more"), rows


def columns_of(table: Table) -> list[Field]:
    """Returns the columns of a table: also those that are only written."""
    found = [Field(each.name, each.type) for each in table.columns]
    if any(each.expression is not None for each in table.columns):
        types = {each.name: each for each in scan_of(table).fields}
        return [types.get(each.name, each) for each in found]
    return found


def quoted(name: str) -> str:
    """Returns a name as SQL writes it: in backquotes if it needs them."""
    if name.isidentifier() and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"
