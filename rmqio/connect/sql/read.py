"""`ReadFromSql`: reads the rows of a table or a query, once."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.sql.engine import Database, reason_of
from rmqio.errors import LocalError

_ROWS: Final = 5_000
_NAME: Final = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*")


class ReadFromSql(beam.PTransform):
    """Reads the rows of a table or a query as dicts, and ends. A bundle that is repeated reads them again.

    Args:
      url, username, password: as in `WriteToSql`.
      query: a SELECT, or the name of a table.
      partition_on: a column of integers: ranges of it are read in parallel. None: one reader.
      partitions: how many ranges.
    """

    def __init__(
        self,
        url: str,
        query: str,
        *,
        partition_on: str | None = None,
        partitions: int = 8,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(query, str) or not query.strip():
            raise LocalError(f"query is {query!r}; it must be a SELECT, or the name of a table")
        if not isinstance(partitions, int) or not 1 <= partitions <= 1024:
            raise LocalError(f"partitions is {partitions!r}; it must be from 1 to 1024")
        self._database = Database(url, username, password)
        self._database.engine(must_exist=True).dispose()
        self._query, self._partition_on, self._partitions = query.strip().rstrip(";"), partition_on, partitions

    def expand(self, pipeline: Any) -> Any:
        ranges = (
            pipeline
            | "One" >> beam.Create([None])
            | "Ranges"
            >> beam.ParDo(
                _RangesFn(self._database, self._query, self._partition_on, self._partitions)
            ).with_output_types(str)
        )
        spread = ranges | "Spread" >> beam.Reshuffle() if self._partition_on is not None else ranges
        rows = beam.ParDo(_RowsFn(self._database, self._query)).with_output_types(dict[str, Any])
        return spread | "Rows" >> rows

    def display_data(self) -> dict[str, Any]:
        shown = {"query": self._query, "database": self._database.shown, "partition_on": self._partition_on}
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}


def _select(engine: Any, query: str) -> str:
    if _NAME.fullmatch(query):
        quote = engine.dialect.identifier_preparer.quote
        return f"SELECT * FROM {'.'.join(map(quote, query.split('.')))}"
    return query


@contextlib.contextmanager
def _connected(database: Database, query: str) -> Iterator[tuple[Any, Any]]:
    import sqlalchemy as sa

    engine = database.engine(must_exist=True)
    try:
        with contextlib.closing(engine.connect()) as connection:
            yield engine, connection
    except sa.exc.SQLAlchemyError as error:
        shown = " ".join(query.split())[:40]
        raise LocalError(f"{shown} of {database.shown} cannot be read: {reason_of(error)}") from error
    finally:
        engine.dispose()


class _RangesFn(beam.DoFn):
    """Yields the conditions of the ranges, each with every column; one without a condition if there are no ranges."""

    def __init__(self, database: Database, query: str, column: str | None, count: int) -> None:
        self._database, self._query, self._column, self._count = database, query, column, count

    def process(self, _: Any) -> Iterator[str]:
        if self._column is None:
            yield ""
            return
        import sqlalchemy as sa

        with _connected(self._database, self._query) as (engine, connection):
            column = engine.dialect.identifier_preparer.quote(self._column)
            asked = f"SELECT MIN({column}), MAX({column}) FROM ({_select(engine, self._query)}) AS rmqio_rows"
            low, high = connection.execute(sa.text(asked.replace(":", "\\:"))).one()
        if low is None:
            yield f"{column} IS NULL"
            return
        if not isinstance(low, int) or not isinstance(high, int):
            raise LocalError(f"partition_on names {self._column}, which is not a column of integers")
        count = min(self._count, high - low + 1)
        cuts = [low + (high - low + 1) * place // count for place in range(1, count)]
        if not cuts:
            yield "1 = 1"
            return
        yield f"{column} < {cuts[0]} OR {column} IS NULL"
        for before, after in itertools.pairwise(cuts):
            yield f"{column} >= {before} AND {column} < {after}"
        yield f"{column} >= {cuts[-1]}"


class _RowsFn(beam.DoFn):
    """Reads the rows of one range."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self._query = database, query

    def process(self, condition: str) -> Iterator[dict[str, Any]]:
        import sqlalchemy as sa

        with _connected(self._database, self._query) as (engine, connection):
            query = _select(engine, self._query)
            if condition:
                query = f"SELECT * FROM ({query}) AS rmqio_rows WHERE {condition}"
            streaming = connection.execution_options(stream_results=True, yield_per=_ROWS)
            with contextlib.closing(streaming.execute(sa.text(query.replace(":", "\\:")))) as result:
                names = list(result.keys())
                twice = [name for place, name in enumerate(names) if name in names[:place]]
                if twice:
                    raise LocalError(
                        f"{' '.join(self._query.split())[:40]} of {self._database.shown} has two columns {twice[0]}: "
                        "name one of them by AS"
                    )
                for rows in result.partitions(_ROWS):
                    for row in rows:
                        yield {name: _plain(value) for name, value in zip(names, row, strict=True)}


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
