"""Rows of an SQL database, by SQLAlchemy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.sql.catalog.connectors import ConnectorOptions
from rmqio.sql.lookup.files import CHUNK, Line

_DRIVERS: Final = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg",
                   "postgres": "postgresql+psycopg"}  # fmt: skip
"""The drivers that the extra brings, for URLs that name none."""


def rows_of(options: ConnectorOptions, names: Sequence[str]) -> Iterator[list[Line]]:
    """Yields the rows of a table, some hundred at a time. `names`: the columns that are read.

    Raises `LocalError` if the database cannot be reached, or has no such table or columns.
    """
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise LocalError("tables of databases need SQLAlchemy: pip install 'rmqio[sql-databases]'") from error
    scheme, _, rest = options.url.partition(":")
    shown = place_of(options)
    try:
        url = sa.engine.make_url(f"{_DRIVERS.get(scheme, scheme)}:{rest}")
        if options.username is not None:
            url = url.set(username=options.username)
        if options.password is not None:
            url = url.set(password=options.password)
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ValueError) as error:
        raise LocalError(f"{shown}: the url is not valid: {error}") from error
    except ImportError as error:
        raise LocalError(
            f"{shown}: its driver is not installed: {error}; pip install 'rmqio[sql-databases]'"
        ) from error
    if engine.dialect.name == "sqlite":
        _require_file(url.database, shown)
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
        reason = getattr(error, "orig", None) or error
        raise LocalError(f"{shown} cannot be read: {str(reason).strip()}") from error
    finally:
        engine.dispose()


def place_of(options: ConnectorOptions) -> str:
    """Returns the table and its database for a message, without credentials and parameters."""
    scheme, _, rest = options.url.partition(":")
    host = rest.split("?")[0]
    if "@" in host:
        host = f"//{host.rpartition('@')[2]}"
    return f"table {options.table_name} of {scheme}:{host}"


def _require_file(path: str | None, shown: str) -> None:
    """SQLite would create a file that is not there."""
    import os

    if path and path != ":memory:" and not os.path.exists(path):
        raise LocalError(f"{shown} cannot be read: there is no file {path}")
