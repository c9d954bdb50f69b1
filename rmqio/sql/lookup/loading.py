"""Loads a dimension: its rows as they are now, by key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.compile.description import Fragment, FromTable, Mapped, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.lookup import database, files
from rmqio.sql.lookup.definition import Dimension
from rmqio.sql.lookup.files import Line
from rmqio.sql.lookup.table import DictTable, Row, key_maker

_LOGGER: Final = logging.getLogger(__name__)


class Decoding:
    """From records or lines of a dimension to its rows."""

    def __init__(self, dimension: Dimension) -> None:
        table, columns = dimension.table, dimension.columns
        self._run = compiled(Fragment(FromTable(table, columns), dimension.steps, ToRows(), dimension.zone))
        kinds = [dimension.fields[each].type for each in dimension.keys]
        self.key_of: Callable[[Row], Any] = key_maker(kinds, dimension.keys)
        self._name, self._skips = table.name, table.options.on_error == "skip"

    def rows(self, records: Sequence[Any], place: Callable[[Any], str]) -> Mapped:
        """Returns the rows. Raises `LocalError` for the first bad record, unless the table skips them."""
        mapped = self._run(records)
        if mapped.failed:
            position, error = next(iter(mapped.failed.items()))
            where = place(records[position])
            if not self._skips:
                raise LocalError(f"{where}: {error}") from error
            count = len(mapped.failed)
            _LOGGER.warning("dimension %s: %d rows left out, the first at %s: %s", self._name, count, where, error)
        return mapped


def load(dimension: Dimension) -> DictTable:
    """Returns the rows of files or of a database. Raises `LocalError`."""
    decoding = Decoding(dimension)
    found = DictTable()
    for lines in _chunks(dimension):
        for row in decoding.rows(lines, line_place).values:
            found.add(decoding.key_of(row), row)
    found.close()
    return found


def _chunks(dimension: Dimension) -> Iterator[list[Line]]:
    options = dimension.table.options
    names = [each.name for each in dimension.columns if each.is_physical]
    if options.connector == FILES:
        for path in files.paths_of(options.of_connector.path):
            yield from files.rows_of(dimension.table, path, names)
    else:
        yield from database.rows_of(options.of_connector, names)


def line_place(line: Line) -> str:
    """Returns where a row is, for a message."""
    return f"{line.path}, row {line.number}"
