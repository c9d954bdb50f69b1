"""Definitions of dimension tables: all that a worker needs to load one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmqio.interfaces import ClientFactory
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.steps import Step
from rmqio.sql.planning.plan import Field
from rmqio.sql.values import session_zone

Row = tuple[Any, ...]


class Lease(Protocol):
    """A table that somebody uses. It is given back when nothing refers to the lease any more."""

    def getter(self) -> Callable[[Any], Sequence[Row]]:
        """Returns the function from a key to its rows, of the table as it is now. The first one loads it.

        A key is a value, or a tuple if it has several columns. No column of it is NULL.

        Raises `SqlError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Dimension:
    """A table to look up in. It travels to the workers.

    Attributes:
      table: where the rows come from.
      columns: the columns of the table that are read.
      steps: filters and projections, from those columns to `fields`.
      fields: the columns of the rows that are kept.
      keys: the positions of the key's columns among them.
      job: the job that loads it: another one loads its own copy.
      factory: creates clients, if the table is a topic.
      zone: of the session in which it was planned.
    """

    table: Table
    columns: tuple[Column, ...]
    steps: tuple[Step, ...]
    fields: tuple[Field, ...]
    keys: tuple[int, ...]
    job: str = ""
    factory: ClientFactory | None = None
    zone: str = field(default_factory=session_zone)

    def identity(self) -> str:
        """Returns a text that is the same for dimensions with the same rows."""
        options = self.table.options
        primary = self.table.primary_key
        parts = (
            options.connector, options.topic, options.name_server, options.format, options.on_error,
            sorted((name, each.value) for name, each in options.of_format.items()),
            options.of_connector.path, options.of_connector.url, options.of_connector.table_name,
            options.of_connector.username, options.of_connector.password, options.of_connector.password_env,
            options.of_connector.password_file, options.of_connector.refresh_ms,
            options.of_connector.skips_first_line, options.tag, options.sql, options.zone, primary,
            [(each.name, str(each.type)) for each in self.table.columns],
            [each.name for each in self.columns],
            [(each.condition, each.projections) for each in self.steps],
            [str(each.type) for each in self.fields], self.keys, self.job, self.zone,
        )  # fmt: skip
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
