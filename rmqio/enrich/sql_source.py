"""Rows of a query on a database, by SQLAlchemy; ranges of it are read at once."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqio.addresses import shown_url
from rmqio.errors import LocalError
from rmqio.hints import meant_or_known

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqio.security import SecretSource


# Connections to SQL databases, by SQLAlchemy.

_DRIVERS: Final = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg",
                   "postgres": "postgresql+psycopg"}  # fmt: skip
"""The drivers that the extra sql-databases brings, for URLs that name none."""


def engine_of(url: str, username: str | None, password: str | None, shown: str) -> Any:
    """Returns SQLAlchemy's engine. `username`, `password`: if they are not in the URL.

    Raises `LocalError` if the URL is not valid, its driver is not installed, or SQLite's file is not there.
    """
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise LocalError("tables of databases need SQLAlchemy: pip install 'rmqio[sql-databases]'") from error
    scheme, _, rest = url.partition(":")
    try:
        made = sa.engine.make_url(f"{_DRIVERS.get(scheme, scheme)}:{rest}")
        made = made if username is None else made.set(username=username)
        made = made if password is None else made.set(password=password)
        if made.get_backend_name() == "sqlite":
            path = made.database  # SQLite would create a file that is not there
            if path and path != ":memory:" and not os.path.exists(path):
                raise LocalError(f"{shown} cannot be read: there is no file {path}")
        return sa.create_engine(made, poolclass=sa.pool.NullPool)
    except LocalError:  # which is a ValueError
        raise
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ValueError) as error:
        raise LocalError(
            f"{shown} cannot be read: its URL is not valid; it must be like mysql://user@host/database"
        ) from error
    except ImportError as error:
        raise LocalError(
            f"{shown} cannot be read: its driver is not installed: {error}; pip install 'rmqio[sql-databases]'"
        ) from error


_ROWS: Final = 20_000
_ORDERED: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*")


@dataclass(frozen=True, slots=True, repr=False)
class Query:
    """See `Source`."""

    url: str
    query: str
    partition_on: str | None
    partitions: int
    username: str | None
    password: SecretSource | None

    def __post_init__(self) -> None:
        if not isinstance(self.partitions, int) or not 1 <= self.partitions <= 64:
            raise LocalError(f"partitions is {self.partitions!r}; it must be from 1 to 64")

    def __repr__(self) -> str:
        return f"Query({self.shown})"

    @property
    def shown(self) -> str:
        query = " ".join(self.query.split())
        if not _NAME.fullmatch(query):
            query = f"({query[:40]}...)" if len(query) > 40 else f"({query})"
        return f"{query} of {shown_url(self.url)}"

    def identity(self) -> tuple[object, ...]:
        return "sql", self.url, self.query, self.username

    def version(self) -> str | None:
        return None

    def rows(self) -> int | None:
        return None

    def size(self) -> int:
        return 0

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """See `Source`. The types of the columns are those of the first rows; what does not fit them is an error."""
        password = None if self.password is None else self.password.get()
        engine = engine_of(self.url, self.username, password, self.shown)
        import sqlalchemy as sa

        try:
            yield from _Reading(self, engine, columns).batches()
        except sa.exc.SQLAlchemyError as error:
            reason = " ".join(str(getattr(error, "orig", None) or error).split())  # the drivers' have several lines
            raise LocalError(f"{self.shown} cannot be read: {reason}") from error
        finally:
            engine.dispose()


class _Reading:
    def __init__(self, source: Query, engine: Any, columns: Sequence[str] | None) -> None:
        import sqlalchemy as sa

        self._sa, self._source, self._engine = sa, source, engine
        quote = engine.dialect.identifier_preparer.quote
        # A line of its own ends what encloses the query, because the query can end with a comment.
        query = source.query.strip().rstrip(";")
        if _NAME.fullmatch(query):
            query = f"SELECT * FROM {'.'.join(map(quote, query.split('.')))}"
        self._columns, self._query, self._quote = columns, query, quote
        self._schema: Any = None
        self._names: list[str] = []
        self._read = 0
        """The rows that batches were made of."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._names = self._known()
        chosen = ", ".join(map(self._quote, self._names))
        select = f"SELECT {chosen} FROM ({self._query}\n) AS rmqio_rows"
        if self._source.partition_on is None and _ORDERED.search(self._query):
            # MariaDB ignores the order of a query inside of another one, and the order can say which row counts.
            places = [self._all.index(name) for name in self._names]
            for rows in self._rows(self._query):
                yield self._batch([tuple(row[place] for place in places) for row in rows])
        elif self._source.partition_on is None:
            for rows in self._rows(select):
                yield self._batch(rows)
        else:
            yield from self._at_once([f"{select} WHERE {each}" for each in self._ranges()])
        if self._schema is None:  # no rows: the names alone, since the types are those of the rows
            import pyarrow as pa

            yield pa.RecordBatch.from_arrays([pa.nulls(0) for _ in self._names], names=self._names)

    def _known(self) -> list[str]:
        with self._engine.connect() as connection:
            result = connection.execute(
                self._sa.text(f"SELECT * FROM ({self._query}\n) AS rmqio_rows WHERE 1 = 0".replace(":", "\\:"))
            )
            names = list(result.keys())
        for each in (*(self._columns or ()), *([self._source.partition_on] if self._source.partition_on else [])):
            if each not in names:
                raise LocalError(f"{self._source.shown} has no column {each}{meant_or_known(each, names)}")
        self._all = names
        return names if self._columns is None else list(self._columns)

    def _ranges(self) -> list[str]:
        """Conditions that each row meets one of."""
        column = self._quote(self._source.partition_on)
        with self._engine.connect() as connection:
            asked = f"SELECT MIN({column}), MAX({column}) FROM ({self._query}\n) AS rmqio_rows".replace(":", "\\:")
            low, high = connection.execute(self._sa.text(asked)).one()
        if low is None:
            return [f"{column} IS NULL"]
        if not isinstance(low, int) or not isinstance(high, int):
            raise LocalError(f"partition_on names {self._source.partition_on}, which is not a column of integers")
        count = min(self._source.partitions, high - low + 1)
        cuts = [low + (high - low + 1) * place // count for place in range(1, count)]
        if not cuts:
            return ["1 = 1"]
        between = [f"{column} >= {a} AND {column} < {b}" for a, b in itertools.pairwise(cuts)]
        return [f"{column} < {cuts[0]} OR {column} IS NULL", *between, f"{column} >= {cuts[-1]}"]

    def _rows(self, select: str) -> Iterator[list[Any]]:
        with contextlib.closing(self._engine.connect()) as connection:
            connection = connection.execution_options(stream_results=True, yield_per=_ROWS)
            with contextlib.closing(connection.execute(self._sa.text(select.replace(":", "\\:")))) as result:
                for rows in result.partitions(_ROWS):
                    yield list(rows)

    def _at_once(self, selects: list[str]) -> Iterator[pa.RecordBatch]:
        found: queue.Queue[Any] = queue.Queue(2 * len(selects))
        stopped = threading.Event()

        def put(value: Any) -> None:
            while not stopped.is_set():
                with contextlib.suppress(queue.Full):
                    found.put(value, timeout=0.2)
                    return

        def read(select: str) -> None:
            try:
                for rows in self._rows(select):
                    put(rows)
                    if stopped.is_set():
                        return
                put(None)
            except Exception as error:  # noqa: BLE001  # raised where the rows are taken
                put(error)

        threads = [threading.Thread(target=read, args=(each,), daemon=True) for each in selects]
        for each in threads:
            each.start()
        try:
            left = len(threads)
            while left:
                rows = found.get()
                if isinstance(rows, Exception):
                    raise rows
                if rows is None:
                    left -= 1
                else:
                    yield self._batch(rows)
        finally:
            stopped.set()
            for each in threads:
                each.join()

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        import pyarrow as pa

        from rmqio.enrich.table.kinds import cut_at, shown_fraction

        columns = list(zip(*rows, strict=True))
        if self._schema is None:
            self._schema = pa.schema(
                [(name, self._first_type(name, each)) for name, each in zip(self._names, columns, strict=True)]
            )
        made = []
        for place, (field, given) in enumerate(zip(self._schema, columns, strict=True)):
            values = [_plain(each) for each in given]
            if (row := cut_at(values, field.type)) is not None:
                raise LocalError(
                    f"{self._source.shown}: {self._shown_row(rows, row)} has {shown_fraction(values[row])} in the "
                    f"column {self._names[place]}, which {field.type} would cut; cast it in the query"
                )
            try:
                made.append(pa.array(values, field.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                raise LocalError(
                    f"{self._source.shown}: the column {self._names[place]} has values of the type {field.type} first, "
                    f"and has others: {error}; cast it in the query"
                ) from error
        self._read += len(rows)
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _shown_row(self, rows: list[Any], row: int) -> str:
        """A row in a message. Ranges come in any order, so that a number would say nothing."""
        column = self._source.partition_on
        if column is None:
            return f"row {self._read + row + 1:,}"
        return f"the row with {column} = {rows[row][self._names.index(column)]}" if column in self._names else "a row"

    def _first_type(self, name: str, values: Sequence[Any]) -> pa.DataType:
        import pyarrow as pa

        try:
            return _type_of(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise LocalError(
                f"{self._source.shown}: the column {name} has values of several types: {error}; cast it in the query"
            ) from error


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """The type for all values of a column, of which these are the first."""
    import decimal

    import pyarrow as pa

    given = [_plain(each) for each in values if each is not None]
    if not given:
        return pa.string()
    if all(type(each) is int for each in given):
        return pa.int64()
    if all(isinstance(each, decimal.Decimal) for each in given):
        scale = max(-each.as_tuple().exponent for each in given if isinstance(each.as_tuple().exponent, int))
        return pa.decimal128(38, max(scale, 0))
    return pa.array(given).type


def _plain(value: Any) -> Any:
    import uuid

    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return str(value) if isinstance(value, uuid.UUID) else value
