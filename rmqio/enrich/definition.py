"""Descriptions of tables: where their rows come from. They are picklable, and read nothing on their own."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqio.addresses import shown_url
from rmqio.enrich.sources import Source
from rmqio.errors import LocalError
from rmqio.security import SecretSource, require_no_password

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqio.interfaces import ClientFactory
    from rmqio.security import Security


@dataclass(frozen=True, slots=True)
class Table:
    """A table to look up in: its source, and where its files are kept.

    Make it with one of `from_parquet`, `from_csv`, `from_sql`, `from_arrow` and `from_topic`.

    Attributes:
      source: where the rows come from.
      valid_from, valid_to: columns with the time from which and before which a row is valid; without `valid_to`, until
        the next row of its key. A look-up takes the row that is valid at the time of its element.
      cache_dir: a folder on a local disk, in which all workers of a machine share the files; None: in the user's cache.
      shared_dir: a folder that all machines see; the first one builds the table, and the others copy it.
    """

    source: Source
    valid_from: str | None = None
    valid_to: str | None = None
    cache_dir: str | None = None
    shared_dir: str | None = None

    @classmethod
    def from_parquet(cls, path: str | Sequence[str], **kept: Any) -> Table:
        """Returns the table of files of Parquet.

        Args:
          path: a file, a folder, a pattern such as "users/*.parquet", or a list of these; local, or of a filesystem
            that Beam knows.
          kept: `valid_from`, `valid_to`, `cache_dir`, `shared_dir`: as the attributes.
        """
        from rmqio.enrich.sources import ParquetFiles

        return cls(ParquetFiles(_paths(path)), **_known(kept))

    @classmethod
    def from_csv(
        cls,
        path: str | Sequence[str],
        *,
        types: Mapping[str, str] | None = None,
        delimiter: str = ",",
        quote: str = '"',
        names: Sequence[str] | None = None,
        null: Sequence[str] = ("",),
        **kept: Any,
    ) -> Table:
        """Returns the table of CSV files.

        Args:
          path: as in `from_parquet`. Files that end with .gz, .bz2 or .zst are compressed.
          types: types of columns by Arrow's names, such as "int64", "double", "bool", "date32", "timestamp[us]" or
            "decimal128(10, 2)". Other columns are text: no type is guessed.
          delimiter, quote: one character each; an empty `quote`: none.
          names: the columns, if the files have no line with their names.
          null: texts that stand for NULL.
          kept: as in `from_parquet`.
        """
        from rmqio.enrich.sources import CsvFiles

        given = tuple(sorted((types or {}).items()))
        columns = None if names is None else tuple(names)
        return cls(CsvFiles(_paths(path), given, delimiter, quote, columns, tuple(null)), **_known(kept))

    @classmethod
    def from_sql(
        cls,
        url: str,
        query: str,
        *,
        partition_on: str | None = None,
        partitions: int = 4,
        username: str | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        **kept: Any,
    ) -> Table:
        """Returns the table of a query on MySQL, MariaDB, PostgreSQL, SQLite or any database that SQLAlchemy knows.

        Args:
          url: such as "mysql://host:3306/shop" or "postgresql://host/shop".
          query: a SELECT, or the name of a table.
          partition_on: a column of integers; the query runs for as many ranges of it at once as `partitions` says.
          username: if it is not in the URL.
          password_env, password_file: an environment variable of each process that connects, or a file whose first line
            the password is. A URL with a password is refused: it would travel with the pipeline.
          kept: as in `from_parquet`.
        """
        from rmqio.enrich.sql_source import Query

        require_no_password(url, shown_url(url))
        password = SecretSource.of("password", password_env, password_file)
        return cls(Query(url, query, partition_on, partitions, username, password), **_known(kept))

    @classmethod
    def from_arrow(cls, table: pa.Table, **kept: Any) -> Table:
        """Returns the table of a table of Arrow, which travels with the pipeline.

        `kept`: as in `from_parquet`.
        """
        from rmqio.enrich.sources import ArrowTable

        return cls(ArrowTable.of(table), **_known(kept))

    @classmethod
    def from_topic(
        cls,
        topic: str,
        *,
        name_server: str | Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        deserializer: Any = None,
        on_bad_row: str = "error",
        queues: int | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
        **kept: Any,
    ) -> Table:
        """Returns the table of a compacted topic, which goes on being read: the newest row of each key counts.

        A message without a body deletes the row that its first message key names.

        Args:
          topic: the topic.
          name_server, security, client_factory: as in `ReadFromRocketMQ`.
          types: types of columns, as in `from_csv`; others are text. It has to name all columns that a look-up returns,
            unless these are text.
          deserializer: from a `Record` to a dict of columns; None: bodies are objects of JSON.
          on_bad_row: "error": a message that is not a row fails the pipeline; "skip": it is left out, and logged.
          queues: how many queues the topic has on all brokers. The start fails if the route names fewer, because a
            broker is away; None: those that it names are all.
          kept: `cache_dir`: as in `from_parquet`.
        """
        from rmqio.enrich.sources import Topic

        if "shared_dir" in kept or "valid_from" in kept or "valid_to" in kept:
            raise LocalError(
                "a table of a topic has the newest row of each key: omit shared_dir, valid_from and valid_to"
            )
        made = Topic.of(topic, name_server, types or {}, deserializer, on_bad_row, security, client_factory, queues)
        return cls(made, **_known(kept))

    def identity(self, *more: object) -> str:
        """Returns a text that is the same for tables with the same source, and the same further values."""
        parts = (self.source.identity(), self.valid_from, self.valid_to, *more)
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def replace(self, **changes: Any) -> Table:
        """Returns the table with some attributes changed."""
        return dataclasses.replace(self, **changes)


def _paths(path: str | Sequence[str]) -> tuple[str, ...]:
    import os

    given = (path,) if isinstance(path, (str, os.PathLike)) else tuple(path)
    if not given:
        raise LocalError("path is empty: name the files of the table")
    return tuple(os.fspath(each) for each in given)


def _known(kept: dict[str, Any]) -> dict[str, Any]:
    from rmqio.hints import meant_or_known

    names = ("valid_from", "valid_to", "cache_dir", "shared_dir")
    for name in kept:
        if name not in names:
            raise LocalError(f"a table takes no {name}{meant_or_known(name, names)}")
    return kept
