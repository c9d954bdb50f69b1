"""`WriteToSql`: writes rows to a table of a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqio.connect.sink.transform import WriteToSink
from rmqio.connect.sql.engine import Database
from rmqio.connect.sql.options import TableOptions
from rmqio.connect.sql.sink import SqlSink
from rmqio.errors import LocalError
from rmqio.security import SecretSource


class WriteToSql(WriteToSink):
    """Writes each element as a row of a table, by SQLAlchemy. Each batch is one transaction.

    Delivery: at least once; with "upsert" and "ignore" a row that comes again changes nothing, so that the table is as
    if each came once. While the server is away, batches are tried again.

    Args:
      url: SQLAlchemy's, such as `mysql://user@host/shop` or `postgresql://user@host/shop`. The extra sql-databases has
        drivers for these two.
      table: its name, or `schema.name`. It must exist.
      key: the columns by which a row is found: a primary key, or those of a unique index. None: the primary key.
      mode: "upsert": a row with the key of another one changes the columns that it has, and a tombstone of Kafka or
        RocketMQ deletes the row of its key; "ignore": it is left out;
        "insert": there is no key, and a row can be stored twice.
      columns: those that are written, if rows have others, too. None: all; a field without a column refuses the row.
      ignore_unknown: fields without a column are left out.
      username: instead of that in the URL.
      password_env, password_file: the environment variable, or the file whose first line is the password. Each process
        that connects reads it there. A URL with a password is refused: it would travel with the pipeline.
      batching, retry, batches, on_failure, dead_letter_topic, name_server, security, client_factory: see `WriteToSink`.

    Values: what JSON has no type for is also taken as text: times as ISO 8601 or milliseconds since 1970, decimals,
    bytes as Base64. A time with a zone becomes UTC in a column without one. Objects and lists become JSON.

    Raises `LocalError` when it is built, and at the start of a worker if the table cannot be used.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        key: str | Sequence[str] | None = None,
        mode: str = "upsert",
        columns: Sequence[str] | None = None,
        ignore_unknown: bool = False,
        username: str | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(table, str) or not table:
            raise LocalError(f"table is {table!r}; it must be the name of a table")
        written = TableOptions.of(key, mode, columns, ignore_unknown=ignore_unknown)
        database = Database(url, username, SecretSource.of("password", password_env, password_file))
        database.check()
        super().__init__(SqlSink(database, table, written), **options)
