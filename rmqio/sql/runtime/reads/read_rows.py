"""Reads tables that end: files, and tables of databases."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import SqlError
from rmqio.sql.lookup import database, files
from rmqio.sql.lookup.files import Line


def parts_of(table: Table) -> list[str]:
    """Returns what can be read at the same time: the files; a database is one part. Raises `SqlError`."""
    if table.options.connector != FILES:
        return [table.options.of_connector.table_name]
    try:
        return files.paths_of(table.options.of_connector.path)
    except LocalError as error:
        raise SqlError(f"the table {table.name} cannot be read: {error}") from error


class ReadRowsFn(beam.DoFn):
    """Reads a part of a table as batches, not decoded. Rows of files have places, of which ids are made.

    `names`: the columns that a statement needs.
    """

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        self._table = table
        self._names = names

    def process(self, element: str) -> Iterator[Batch[Line]]:
        options = self._table.options
        if options.connector == FILES:
            chunks = files.rows_of(self._table, element, self._names)
        else:
            chunks = database.rows_of(options.of_connector, self._names)
            for rows in chunks:  # they have no order
                yield Batch(rows)
            return
        version = files.version_of(element)
        place = MessageQueue(element, version, 0)
        for rows in chunks:
            yield Batch([each._replace(version=version) for each in rows], place, [each.number for each in rows])
