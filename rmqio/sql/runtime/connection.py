"""How the tables of a job are reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rmqio.interfaces import ClientFactory
from rmqio.security import Security
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Step, Target
from rmqio.sql.planning.plan import Scan
from rmqio.start import StartFrom, StopAt


@dataclass(frozen=True, slots=True)
class Connection:
    """How the tables of a job are reached, unless they say it themselves.

    Attributes:
      name_server: for tables without `nameServerAddress`.
      security: credentials and TLS.
      start: for tables that do not say where they begin.
      stop: where reads end that have no `endTime`; None: never.
      client_factory: replaces the clients in tests.
      commits: whether offsets of the tables' groups are committed.
      idle_timeout_ms: how long a queue without messages holds the watermark back; None: as `ReadOptions` has it.
      resumed_ms: the job was started before, at this time in Unix milliseconds, and goes on from the offsets of its
        tables' groups; None: it begins.
    """

    name_server: str | None = None
    security: Security | None = None
    start: StartFrom | None = None
    stop: StopAt | None = None
    client_factory: ClientFactory | None = None
    commits: bool = True
    idle_timeout_ms: int | None = None
    resumed_ms: int | None = None

    def of(self, table: Table) -> dict[str, Any]:
        """Returns the arguments of a transform that name the cluster."""
        if self.client_factory is not None:
            return {"client_factory": self.client_factory}
        return {"name_server": table.options.name_server or self.name_server, "security": self.security}


class Input(Protocol):
    """A table whose rows come from elsewhere than a topic."""

    @property
    def is_bounded(self) -> bool:
        """Whether it ends."""

    def write_failed(self, failed: Any, label: str) -> None:
        """Takes the dead letters of rows of this table and others that failed together."""

    def rows(self, label: str, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        """Adds what selects from it. Returns the rows in the form of the target."""
