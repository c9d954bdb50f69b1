"""INSERT INTO tables that are not topics: what can be written."""

from __future__ import annotations

import glob
import os

from rmqio.sql.catalog.connectors import DATABASE, FILES, READ_ONLY_FORMATS
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.syntax import statements


def require_written(statement: statements.Insert, table: Table) -> None:
    """Raises `Refusal` if nothing can be written to the table, or not in this way."""
    options = table.options
    if options.connector == DATABASE:
        raise Refusal(f"{table.name} is a table of a database, which can only be read", statement.table.span)
    if options.connector == FILES and options.format in READ_ONLY_FORMATS:
        raise Refusal(
            f"{table.name} cannot be written: files of the format {options.format} can only be read; use json or csv",
            statement.table.span,
        )
    path = options.of_connector.path
    if options.connector == FILES and (glob.has_magic(path) or os.path.isfile(path)):
        raise Refusal(
            f"{table.name} has the path {path!r}: files are written into a folder, so name one", statement.table.span
        )
    if options.connector == FILES and statement.is_overwrite:
        raise Refusal("INSERT OVERWRITE is not supported: INSERT INTO adds files", statement.span)
