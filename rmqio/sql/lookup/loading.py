"""Rows of files and databases as a source of `rmqio.enrich`: a key and a row, both as bytes.

So the types of SQL need no counterpart in Arrow, and rows are those that travel between the steps of a pipeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqio.errors import counted
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.compile.description import Fragment, FromTable, ToRows
from rmqio.sql.compile.expressions.purity import is_pure
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import SqlError
from rmqio.sql.expressions import Expr
from rmqio.sql.lookup import database, files
from rmqio.sql.lookup.definition import Dimension, Row
from rmqio.sql.lookup.files import Line
from rmqio.sql.lookup.keys import key_maker, packed_key
from rmqio.sql.rows import pack

if TYPE_CHECKING:
    import pyarrow as pa

KEY: Final = "key"
ROW: Final = "row"
_BATCH: Final = 16_384
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DimensionRows:
    """See `Source`."""

    dimension: Dimension

    @property
    def shown(self) -> str:
        return self.dimension.table.name

    def identity(self) -> tuple[object, ...]:
        return "sql dimension", self.dimension.identity()

    def version(self) -> str | None:
        """See `Source.version`. Rows of files stay the same as long as the files do, unless they depend on the time."""
        options = self.dimension.table.options
        steps = self.dimension.steps
        expressions: list[Expr] = [e for each in steps for e in (each.condition, *each.projections) if e is not None]
        is_computed = any(each.expression is not None for each in self.dimension.columns)
        if options.connector != FILES or is_computed or not all(map(is_pure, expressions)):
            return None
        return repr([(path, files.version_of(path)) for path in files.paths_of(options.of_connector.path)])

    def rows(self) -> int | None:
        return None

    def size(self) -> int:
        return 0

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`. Raises `SqlError` for the first bad row, unless the table skips them."""
        import pyarrow as pa

        decode = _decoder(self.dimension)
        keys: list[bytes] = []
        rows: list[bytes] = []

        def made() -> pa.RecordBatch:
            arrays = [pa.array(keys, pa.binary()), pa.array(rows, pa.binary())]
            return pa.RecordBatch.from_arrays(arrays, names=[KEY, ROW])

        for lines in _chunks(self.dimension):
            for key, row in decode(lines):
                keys.append(key)
                rows.append(row)
            if len(keys) >= _BATCH:
                yield made()
                keys, rows = [], []
        yield made()


def _decoder(dimension: Dimension) -> Callable[[Sequence[Line]], Iterator[tuple[bytes, bytes]]]:
    """The function from lines to keys and rows as bytes. Rows whose key has a NULL are left out: nothing is equal."""
    table = dimension.table
    run = compiled(Fragment(FromTable(table, dimension.columns), dimension.steps, ToRows(), dimension.zone))
    key_of = key_maker([dimension.fields[each].type for each in dimension.keys], dimension.keys)
    skips = table.options.on_error == "skip"

    def refuse(line: Line, error: Exception, count: int) -> None:
        where = line.place
        if not skips:
            raise SqlError(f"{where}: {error}") from error
        _LOGGER.warning(
            "dimension %s: %s left out, the first at %s: %s", table.name, counted(count, "row"), where, error
        )

    def of(lines: Sequence[Line]) -> Iterator[tuple[bytes, bytes]]:
        mapped = run(lines)
        if mapped.failed:
            position, error = next(iter(mapped.failed.items()))
            refuse(lines[position], error, len(mapped.failed))
        for position, row in zip(mapped.positions, mapped.values, strict=True):
            try:
                yield from _packed(key_of(row), row)
            except (UnicodeEncodeError, OverflowError) as error:  # half of a surrogate pair, over 64 bits
                refuse(lines[position], error, 1)

    return of


def _packed(key: Any, row: Row) -> list[tuple[bytes, bytes]]:
    return [] if key is None else [(packed_key(key), pack(row))]


def _chunks(dimension: Dimension) -> Iterator[list[Line]]:
    options = dimension.table.options
    names = [each.name for each in dimension.columns if each.is_physical]
    if options.connector == FILES:
        for path in files.paths_of(options.of_connector.path):
            yield from files.rows_of(dimension.table, path, names)
    else:
        yield from database.rows_of(options.of_connector, names)
