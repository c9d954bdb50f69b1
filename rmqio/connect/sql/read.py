"""`ReadFromSql`: reads the rows of a table or a query, once."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.outage import Tries
from rmqio.connect.sink import Retry
from rmqio.connect.sql.engine import Database, DatabaseAway, check_partitions, is_away, reason_of
from rmqio.errors import LocalError
from rmqio.security import SecretSource
from rmqio.serde.strict_json import json_value

_ROWS: Final = 5_000
_MYSQL_JSON: Final = 245
"""The number of the type in MySQL's protocol."""
_DAYS: Final = re.compile(r"(?:[-+]?\d+ days? ?)?(?:[-+]?\d+:\d+:\d+(?:\.\d+)?)?")
"""An interval of PostgreSQL without years and months, which have no fixed length."""
_NAME: Final = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*")


class ReadFromSql(beam.PTransform):
    """Reads the rows of a table or a query as dicts, and ends. A bundle that is repeated reads them again.

    While the server is away, a read is tried again until it has given its first row. After that, a connection that
    breaks fails the bundle, and the runner runs it again: never are there fewer rows.

    Args:
      url, username, password_env, password_file: as in `WriteToSql`.
      query: a SELECT, or the name of a table.
      partition_on: a column of integers: ranges of it are read in parallel. None: one reader.
      partitions: how many ranges.
      retry: how often a read is tried while the server is away.

    Raises `LocalError` when it is built, and on a worker if the query is wrong.
    """

    def __init__(
        self,
        url: str,
        query: str,
        *,
        partition_on: str | None = None,
        partitions: int = 8,
        username: str | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        retry: Retry | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(query, str) or not query.strip():
            raise LocalError(f"query is {query!r}; it must be a SELECT, or the name of a table")
        check_partitions(partitions)
        if not isinstance(retry, (Retry, type(None))):
            raise LocalError(f"retry is {retry!r}; it must be a rmqio.connect.Retry")
        self._retry = retry or Retry()
        self._database = Database(url, username, SecretSource.of("password", password_env, password_file))
        self._database.check(must_exist=True)
        self._query, self._partition_on, self._partitions = query.strip().rstrip(";"), partition_on, partitions

    def expand(self, pipeline: Any) -> Any:
        ranges = (
            pipeline
            | "One" >> beam.Create([None])
            | "Ranges"
            >> beam.ParDo(
                _RangesFn(self._database, self._query, self._retry, self._partition_on, self._partitions)
            ).with_output_types(str)
        )
        spread = ranges | "Spread" >> beam.Reshuffle() if self._partition_on is not None else ranges
        rows = beam.ParDo(_RowsFn(self._database, self._query, self._retry)).with_output_types(dict[str, Any])
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
        text = f"{_name(database, query)} cannot be read: {reason_of(error)}"
        raise (DatabaseAway if is_away(error) else LocalError)(text) from error
    finally:
        engine.dispose()


def _name(database: Database, query: str) -> str:
    return f"{' '.join(query.split())[:40]} of {database.shown}"


class _ReadFn(beam.DoFn):
    """Reads, again if the server is away and nothing was read."""

    def __init__(self, database: Database, query: str, retry: Retry) -> None:
        self._database, self._query, self._retry = database, query, retry

    def process(self, element: Any) -> Iterator[Any]:
        tries = Tries(_name(self._database, self._query), self._retry, DatabaseAway)
        while True:
            given = False
            try:
                for each in self._read(element):
                    if not given:
                        tries.passed()
                    given = True
                    yield each
                tries.passed()
                return
            except DatabaseAway as error:
                if given:
                    raise
                tries.wait(error)

    def _read(self, element: Any) -> Iterator[Any]:
        raise NotImplementedError


class _RangesFn(_ReadFn):
    """Yields the conditions of the ranges, each with every column; one without a condition if there are no ranges."""

    def __init__(self, database: Database, query: str, retry: Retry, column: str | None, count: int) -> None:
        super().__init__(database, query, retry)
        self._column, self._count = column, count

    def _read(self, element: Any) -> Iterator[str]:
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


class _RowsFn(_ReadFn):
    """Reads the rows of one range."""

    def _read(self, element: str) -> Iterator[dict[str, Any]]:
        import sqlalchemy as sa

        with _connected(self._database, self._query) as (engine, connection):
            query = _select(engine, self._query)
            if element:
                query = f"SELECT * FROM ({query}) AS rmqio_rows WHERE {element}"
            raw = connection.connection.driver_connection
            if (adapters := getattr(raw, "adapters", None)) is not None:  # of psycopg
                adapters.register_loader("interval", interval_loader())
            streaming = connection.execution_options(stream_results=True, yield_per=_ROWS)
            with contextlib.closing(streaming.execute(sa.text(query.replace(":", "\\:")))) as result:
                names = list(result.keys())
                twice = [name for place, name in enumerate(names) if name in names[:place]]
                if twice:
                    raise LocalError(
                        f"{_name(self._database, self._query)} has two columns {twice[0]}: rename one of them with AS"
                    )
                documents = json_columns(connection, self._query, result.cursor.description)
                converters = [_document if name in documents else _plain for name in names]
                try:
                    for rows in result.partitions(_ROWS):
                        for row in rows:
                            yield {
                                name: convert(value)
                                for name, convert, value in zip(names, converters, row, strict=True)
                            }
                except sa.exc.SQLAlchemyError:
                    _end_result(raw)
                    raise


@functools.cache
def interval_loader() -> Any:
    """A loader of psycopg, which would read a month as 30 days. What is no timedelta is PostgreSQL's own text."""
    from psycopg import DataError
    from psycopg.types.datetime import IntervalLoader

    class Loader(IntervalLoader):
        def load(self, data: Any) -> Any:
            text = bytes(data).decode()
            if _DAYS.fullmatch(text):
                with contextlib.suppress(DataError, NotImplementedError):  # more than a timedelta holds, another style
                    return super().load(data)
            return text

    return Loader


def _end_result(raw: Any) -> None:
    """Prevents PyMySQL from reading a result on when it is collected, although its connection has broken.

    That would print a traceback. Other drivers have none of these attributes.
    """
    result = getattr(raw, "_result", None)
    if getattr(raw, "_rfile", raw) is None and result is not None:
        result.unbuffered_active, raw._result = False, None


def json_columns(connection: Any, query: str, description: Any) -> frozenset[str]:
    """Returns the columns of JSON that the driver reads as text: psycopg reads values.

    MySQL says which they are. SQLite says it of tables only, and MariaDB has none: its JSON is a LONGTEXT.
    """
    import sqlalchemy as sa

    if connection.dialect.name in ("mysql", "mariadb"):
        return frozenset(name for name, kind, *_ in description if kind == _MYSQL_JSON)
    if connection.dialect.name == "sqlite" and _NAME.fullmatch(query):
        schema, _, name = query.rpartition(".")
        columns = sa.inspect(connection).get_columns(name, schema=schema or None)
        return frozenset(each["name"] for each in columns if isinstance(each["type"], sa.JSON))
    return frozenset()


def _document(value: Any) -> Any:
    """The value of JSON; a text that is none is left as it is, since SQLite stores any in a column of JSON."""
    try:
        return json_value(value) if isinstance(value, (str, bytes)) else value
    except (ValueError, RecursionError):
        return value


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
