"""The sink for tables of SQL databases."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from rmqio.connect.kafka.records import deleted_key
from rmqio.connect.rows import to_row
from rmqio.connect.sink import BatchSink, PerhapsRefused, RowRefused, Verdict, Written
from rmqio.connect.sql.columns import Columns, loose_columns
from rmqio.connect.sql.engine import (
    Database,
    DatabaseAway,
    TableOptions,
    is_lost,
    is_perhaps_of_row,
    reason_of,
    verdict_of,
)
from rmqio.errors import LocalError
from rmqio.hints import did_you_mean

# The statements of a batch. Rows of one key keep their order, whatever the database takes as one key.
#
# A collation can take 'a' and 'A' as one key, 'a' and 'a ', or 'ß' and 'ss', and a column can round times and
# decimals, fill bytes up with zeros, or take '1 day' and '24 hours' as one key: such columns are loose (`keys`). The
# database applies the rows of a statement in order, and the statements, too. So the order of rows changes only
# between keys that differ in every database.

Row = dict[str, Any]
Statement = tuple[tuple[str, ...], list[Row]]
"""The names of the columns, and the rows."""

_IGNORED: Final = re.compile(r"[^0-9a-z]")
"""Characters of ASCII that collations can pass over: spaces, punctuation, control characters."""
_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")
"""Before a number, for collations that compare numbers."""
_SAME: Final = str.maketrans("jyuw", "iivv")
"""Letters that are one in some language: I and J, U and V in Latin, I and Y in Lithuanian, V and W in Swedish."""


def statements_of(
    rows: Sequence[Row], key: tuple[str, ...], *, keep_first: bool, loose: Collection[str] = ()
) -> list[Statement]:
    """Returns the statements, in order. Without a key, all orders are good.

    A row is left out if a later one of its key has all of its columns.

    Args:
      keep_first: the first row of a key counts: later ones are left out.
      loose: columns of the key in which different values can be equal.
    """
    if not key:
        return _by_names(rows)
    keys = [tuple(_exact(row[each]) if each in loose else row[each] for each in key) for row in rows]
    needed = _first_of_each(rows, keys) if keep_first else _not_replaced(rows, keys)
    if len({tuple(row) for row in needed}) == 1:  # the usual case: there is nothing to compare
        return _by_names(needed)
    statements: list[Statement] = []
    newest: dict[tuple[str, ...], int] = {}
    """The last statement with these columns."""
    last: dict[tuple[Any, ...], int] = {}
    """The last statement with a key that can be this one."""
    firm = tuple(each for each in key if each not in loose)
    for row, comparable in zip(needed, _comparable(needed, firm), strict=True):
        names = tuple(sorted(row))
        place = newest.get(names, -1)
        if place < last.get(comparable, 0):
            place = newest[names] = len(statements)
            statements.append((names, []))
        statements[place][1].append(row)
        last[comparable] = place
    return statements


def _exact(value: Any) -> Hashable:
    """Returns what is equal only for values that are one key in every database."""
    if isinstance(value, (str, int, float, bytes, Decimal, dt.date, dt.timedelta)):
        return value
    return type(value), repr(value)  # arrays have no hash, and a time of day in two zones can be two keys


def _first_of_each(rows: Sequence[Row], keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    found: dict[tuple[Any, ...], Row] = {}
    for row, values in zip(rows, keys, strict=True):
        found.setdefault(values, row)
    return list(found.values())


def _not_replaced(rows: Sequence[Row], keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    kept: list[Row] = []
    later: dict[tuple[Any, ...], Row] = {}
    for row, values in zip(reversed(rows), reversed(keys), strict=True):
        if values not in later or not row.keys() <= later[values].keys():
            kept.append(row)
            later[values] = row
    kept.reverse()
    return kept


def _comparable(rows: Sequence[Row], key: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Yields tuples that differ only if the keys differ in every database.

    A column with a value of which this is not known does not count: that value can be equal to any other one. Nor does
    a column with values of several types: 1 and '1' are one key of a column of integers.
    """
    columns = []
    for name in key:
        values = [_surely(row[name]) for row in rows]
        if None not in values and len({type(each) for each in values}) == 1:
            columns.append(values)
    return zip(*columns, strict=True) if columns else [()] * len(rows)


def _surely(value: Any) -> Any:
    """Returns a value that differs from others only if the database's do. None: not known, as for letters like ß."""
    if isinstance(value, str):
        if not value.isascii():
            return None
        return _ZEROS.sub("", _IGNORED.sub("", value.lower())).translate(_SAME)
    if isinstance(value, (int, bytes)) or type(value) is dt.date:
        return value
    return None  # a column can round decimals, floats and times


def _by_names(rows: Iterable[Row]) -> list[Statement]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(sorted(row)), []).append(row)
    return list(groups.items())


_WITH_KEYS: Final = ("mysql", "mariadb", "postgresql", "sqlite")


class Deletion(dict[str, Any]):
    """The key of a row that is deleted."""


class SqlSink(BatchSink):
    """Writes rows to one table, each batch in one transaction."""

    def __init__(self, database: Database, table: str, options: TableOptions) -> None:
        self._database, self._table_name, self._options = database, table, options
        self.name = f"table {table} of {database.shown}"
        self._engine: Any = None
        self._insert: Any = None

    def open(self) -> None:
        """See `BatchSink`. Reads the columns and keys of the table."""
        import sqlalchemy as sa

        self._engine = self._database.engine(pooled=True, must_exist=True)
        schema, _, name = self._table_name.rpartition(".")
        try:
            self._table = sa.Table(name, sa.MetaData(), schema=schema or None, autoload_with=self._engine)
            keys = self._keys(sa.inspect(self._engine), name, schema or None)
            with self._engine.connect() as connection:
                self._loose = loose_columns(self._table, connection)
        except sa.exc.NoSuchTableError:
            with self._engine.connect() as connection:
                names = sa.inspect(connection).get_table_names(schema=schema or None)
            raise LocalError(f"{self.name}: there is no such table{did_you_mean(name, names)}") from None
        except sa.exc.SQLAlchemyError as error:
            if verdict_of(error) is Verdict.RETRY:
                raise DatabaseAway(reason_of(error)) from error
            raise LocalError(f"{self.name} cannot be used: {reason_of(error)}") from error
        options = self._options
        known = [column.name for column in self._table.columns]
        for each in (*(options.key or ()), *(options.columns or ())):
            if each not in known:
                raise LocalError(f"{self.name} has no column {each}{did_you_mean(each, known)}")
        self._columns = Columns(
            self._table, options.columns, ignore_others=options.ignore_unknown, shown=f"table {self._table_name}",
            dialect=self._engine.dialect.name,
        )  # fmt: skip
        self._key: tuple[str, ...] = ()
        if options.mode != "insert":
            self._key = self._chosen(keys)
            left_out = [each for each in self._key if options.columns is not None and each not in options.columns]
            if left_out:
                raise LocalError(f"{self.name}: columns leaves out {left_out[0]}, which is the key, or a part of it")
        for column in self._table.columns:
            if isinstance(column.type, sa.JSON):
                column.type.none_as_null = True  # by default, SQLAlchemy writes JSON's null
        self._insert = self._statements(self._engine.dialect.name)

    def close(self) -> None:
        """See `BatchSink`."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def convert(self, element: Any) -> Any:
        """See `BatchSink`. A tombstone is a `Deletion`."""
        if (deleted := deleted_key(element)) is not None:
            return self._deletion(deleted)
        row = to_row(element)
        missing = [each for each in self._options.key or () if row.get(each) is None]
        if missing and self._options.mode != "insert":
            hint = "" if missing[0] in row else did_you_mean(missing[0], map(str, row))
            raise RowRefused(f"{self.name}: the row has no {missing[0]}, which is its key{hint}")
        return row

    def _deletion(self, key: str) -> Deletion:
        if self._options.mode != "upsert":
            raise RowRefused(f'{self.name}: a tombstone deletes a row, which works only with mode="upsert"')
        if len(self._key) != 1:
            raise RowRefused(f"{self.name}: a tombstone has one key, and that of a row is ({', '.join(self._key)})")
        return Deletion({self._key[0]: key})

    def destination(self, row: Any) -> Hashable:
        """See `BatchSink`."""
        return None

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        """See `BatchSink`."""
        import sqlalchemy as sa

        refused: dict[int, Exception] = {}
        converted: list[tuple[bool, dict[str, Any]]] = []
        """Whether the row is deleted, and its values."""
        for position, row in enumerate(rows):
            try:
                found = self._columns.convert(row)
                missing = [each for each in self._key if found.get(each) is None]
                if missing:
                    raise RowRefused(f"{self.name}: the row has no {missing[0]}, which is its key")
                converted.append((isinstance(row, Deletion), found))
            except RowRefused as error:
                refused[position] = error
        if converted:
            try:
                self._execute(converted)
            except sa.exc.SQLAlchemyError as error:
                if verdict_of(error) is Verdict.ROWS:
                    kind = PerhapsRefused if is_perhaps_of_row(error) else RowRefused
                    raise kind(f"{self.name}: {reason_of(error)}") from error
                if verdict_of(error) is Verdict.RETRY:
                    # The other connections of the pool have lost the server, too.
                    with contextlib.suppress(sa.exc.SQLAlchemyError):
                        self._engine.dispose()
                    if is_lost(error) and (problem := self._too_large(error)):
                        raise RowRefused(f"{self.name}: {problem}") from error
                    raise DatabaseAway(reason_of(error)) from error
                raise LocalError(f"{self.name} cannot be written: {reason_of(error)}") from error
            except (TypeError, ArithmeticError) as error:  # a driver's own
                if isinstance(error, OverflowError):
                    raise
                raise PerhapsRefused(f"{self.name}: {reason_of(error)}") from error
        return Written(refused) if refused else None

    def _execute(self, rows: list[tuple[bool, dict[str, Any]]]) -> None:
        """Writes converted rows in one transaction. Raises the first error: that of the rollback would hide it."""
        first: Exception | None = None
        try:
            with self._engine.begin() as connection:
                for statement, group in self._ordered(rows):
                    try:
                        connection.execute(statement, group)
                    except Exception as error:
                        first = error
                        raise
        except Exception:
            if first is None:
                raise
            raise first from first.__cause__

    def _ordered(self, rows: list[tuple[bool, dict[str, Any]]]) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
        """Yields the statements: deletions stay between what is written before and after them."""
        import sqlalchemy as sa

        keep_first = self._options.mode == "ignore"
        for deletes, part in itertools.groupby(rows, key=lambda row: row[0]):
            values = [each for _, each in part]
            if deletes:
                name = self._key[0]
                yield (
                    sa.delete(self._table).where(self._table.c[name] == sa.bindparam("rmqio_key")),
                    [{"rmqio_key": each[name]} for each in values],
                )
                continue
            for names, group in statements_of(values, self._key, keep_first=keep_first, loose=self._loose):
                yield self._insert(names), group

    def _too_large(self, error: Any) -> str | None:
        """Says that a statement is larger than MySQL takes: it ends the connection without a word."""
        import sqlalchemy as sa

        try:
            with self._engine.connect() as connection:
                limit = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar())
                cursor = connection.connection.cursor()
                given = error.params if isinstance(error.params, list) else [error.params]
                texts = [cursor.mogrify(error.statement, each) for each in given if error.statement]
        except (sa.exc.SQLAlchemyError, AttributeError):  # it is away; or the driver does not say what it sends
            return None
        size = sum(len(each.encode("utf-8", "surrogateescape")) for each in texts)
        return f"{size} bytes are more than its max_allowed_packet, {limit}" if size >= limit else None

    def judge(self, error: Exception) -> Verdict:
        """See `BatchSink`."""
        if type(error).__module__.startswith("sqlalchemy."):
            return verdict_of(error)
        if isinstance(error, (ValueError, OverflowError)) and not isinstance(error, LocalError):
            return Verdict.ROWS  # a driver's own error: half a surrogate pair, a number of more than 64 bits
        return super().judge(error)

    def _keys(self, inspector: Any, name: str, schema: str | None) -> list[tuple[str, ...]]:
        """The columns of the primary key, then those of each unique constraint."""
        primary = tuple(inspector.get_pk_constraint(name, schema=schema)["constrained_columns"])
        unique = [tuple(each["column_names"]) for each in inspector.get_unique_constraints(name, schema=schema)]
        indexes = inspector.get_indexes(name, schema=schema)
        unique += [
            tuple(each["column_names"]) for each in indexes if each["unique"] and None not in each["column_names"]
        ]
        return [each for each in (primary, *unique) if each]

    def _chosen(self, keys: list[tuple[str, ...]]) -> tuple[str, ...]:
        mode, wanted = self._options.mode, self._options.key
        if self._engine.dialect.name not in _WITH_KEYS:
            raise LocalError(f'{self.name}: mode="{mode}" works only with {", ".join(_WITH_KEYS)}; use mode="insert"')
        if wanted is None:
            if not keys:
                raise LocalError(f'{self.name} has no primary key: mode="{mode}" needs one; or use mode="insert"')
            return keys[0]
        for each in keys:
            if set(each) == set(wanted):
                return each
        there = ", ".join(f"({', '.join(each)})" for each in keys) or "none"
        raise LocalError(
            f"{self.name}: the key ({', '.join(wanted)}) is not a primary key and has no unique index, so the database "
            f"would not find the row to change; its keys: {there}"
        )

    def _statements(self, dialect: str) -> Any:
        """The function from names of columns to the statement."""
        import sqlalchemy as sa
        from sqlalchemy.dialects import mysql, postgresql, sqlite

        table, key, mode = self._table, self._key, self._options.mode
        made: dict[tuple[str, ...], Any] = {}

        def build(names: tuple[str, ...]) -> Any:
            if mode == "insert":
                return sa.insert(table)
            changed = [name for name in names if name not in key] if mode == "upsert" else []
            if dialect in ("mysql", "mariadb"):
                insert = mysql.insert(table)
                # INSERT IGNORE would also cut values that do not fit: to change a key to itself changes nothing.
                return insert.on_duplicate_key_update(
                    {name: insert.inserted[name] for name in changed} or {key[0]: table.c[key[0]]}
                )
            found = (postgresql if dialect == "postgresql" else sqlite).insert(table)
            if not changed:
                return found.on_conflict_do_nothing(index_elements=list(key))
            return found.on_conflict_do_update(
                index_elements=list(key), set_={name: found.excluded[name] for name in changed}
            )

        def statement(names: tuple[str, ...]) -> Any:
            if names not in made:
                made[names] = build(names)
            return made[names]

        return statement
