"""Rows of an SQL database, by SQLAlchemy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rmqio.addresses import shown_url
from rmqio.enrich.sql_source import engine_of
from rmqio.errors import LocalError
from rmqio.security import password_from
from rmqio.sql.catalog.connectors import ConnectorOptions
from rmqio.sql.errors import SqlError
from rmqio.sql.lookup.files import CHUNK, Line
from rmqio.sql.secrets import masked_value


def rows_of(options: ConnectorOptions, names: Sequence[str]) -> Iterator[list[Line]]:
    """Yields the rows of a table, some hundred at a time. `names`: the columns that are read.

    Raises `SqlError` if the database cannot be reached, or has no such table or columns.
    """
    shown = place_of(options)
    try:
        password = options.password or password_from(options.password_env, options.password_file)
    except LocalError as error:
        raise SqlError(f"{shown} cannot be read: {error}") from error
    engine = engine_of(options.url, options.username, password, shown)
    import sqlalchemy as sa

    schema, _, name = options.table_name.rpartition(".")
    table = sa.table(name, *(sa.column(each) for each in names), schema=schema or None)
    columns: list[Any] = [table.c[each] for each in names] or [sa.literal(1).label("one")]
    query = sa.select(*columns).select_from(table)
    number = 0
    try:
        with contextlib.closing(engine.connect()) as connection:
            connection = connection.execution_options(stream_results=True, yield_per=CHUNK)
            with contextlib.closing(connection.execute(query)) as result:
                for rows in result.partitions(CHUNK):
                    given = (dict(zip(names, row, strict=False)) for row in rows)
                    yield [Line(row, shown, number + i) for i, row in enumerate(given, 1)]
                    number += len(rows)
    except sa.exc.SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())  # the drivers' have several lines
        raise SqlError(f"{shown} cannot be read: {reason}") from error
    finally:
        engine.dispose()


def place_of(options: ConnectorOptions) -> str:
    """Returns the table and its database for a message, without credentials and parameters."""
    return f"table {masked_value(options.table_name)} of {shown_url(options.url)}"
