"""How a job reads its tables: by which connection, from where to where, and which scans share what they read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from rmqio.interfaces import ClientFactory
from rmqio.security import Security
from rmqio.sql.catalog.options import TableOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Fragment, Step, Target, ToGroups, ToKeys, ToRanks, ToTable
from rmqio.sql.planning.plan import Scan
from rmqio.sql.planning.pushdown import Pushed
from rmqio.start import StartFrom, StopAt

# Decides where a read begins and ends, by the table, by the job, and by what WHERE implies.


def bounds(
    options: TableOptions, start: StartFrom | None, stop: StopAt | None, pushed: Pushed, resumed_ms: int | None = None
) -> tuple[StartFrom, StopAt | None]:
    """Returns the start and the stop of a table's read.

    A bound of WHERE moves a start by time, or at the earliest message; offsets of a group say more than a time. It
    moves a stop only if there is one and the time has passed: no statement ends by its WHERE.

    Args:
      options: of the table, which come first.
      start, stop: of the job.
      pushed: what the statements imply.
      resumed_ms: when the job was started first, if it goes on from the offsets of the group.
    """
    begins = options.start or start
    if begins is None:
        begins = StartFrom.group_offsets("latest") if options.group else StartFrom.latest()
    if options.start is None and begins.needs_group and not options.group:
        begins = StartFrom.earliest()  # as a SELECT of the shell
    if resumed_ms is not None and options.group:
        begins = begins.resumed(resumed_ms)
    ends = StopAt.timestamp(options.end_ms) if options.end_ms is not None else stop
    low, high = pushed.start_ms, pushed.stop_ms
    if low is not None and high is not None and low >= high:
        return begins, ends
    later = begins
    if low is not None and low > 0 and begins.kind == "earliest":
        later = StartFrom.timestamp(low)
    elif low is not None and begins.kind == "timestamp":
        later = StartFrom.timestamp(max(begins.timestamp_ms, low))
    earlier = ends
    if high is not None and ends is not None and high > 0:
        if ends.kind == "latest":
            earlier = StopAt.timestamp(high)
        elif ends.kind == "timestamp":
            earlier = StopAt.timestamp(min(ends.timestamp_ms, high))
    is_empty = later.kind == "timestamp" and earlier is not None and earlier.kind == "timestamp"
    if is_empty and earlier is not None and later.timestamp_ms >= earlier.timestamp_ms:
        return begins, ends  # a read must not end before it begins
    return later, earlier


# The scans of a job that share the decoding of a table.

_TARGETS: Final = (ToGroups, ToKeys, ToRanks, ToTable)


class ScanUse(NamedTuple):
    """A scan as it is translated: its fragment, and for rows with keys the input of the join."""

    fragment: Fragment
    side: int


@dataclass(slots=True)
class SharedScan:
    """Scans of one table, in the order in which they are translated.

    Attributes:
      uses: the scans.
      taken: how many of them are translated.
      outputs: what their DoFn gives; None: it does not exist yet.
    """

    uses: list[ScanUse]
    taken: int = 0
    outputs: Any = None

    def columns_of(self, label: str) -> tuple[list[Fragment], list[str], list[int]]:
        """Returns the fragments, their labels and their sides. The first one has this label."""
        labels = [label if number == 0 else f"{label}/{number + 1}" for number in range(len(self.uses))]
        return [each.fragment for each in self.uses], labels, [each.side for each in self.uses]


@dataclass(slots=True)
class SharedScans:
    """The scans of a job by table.

    Args:
      scans: each scan, in order.
    """

    scans: Iterable[tuple[Table, ScanUse]] = ()
    _by_table: dict[int, SharedScan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table, use in self.scans:
            if type(use.fragment.target) in _TARGETS:
                self._by_table.setdefault(id(table), SharedScan([])).uses.append(use)

    def next(self, table: Table, use: ScanUse) -> SharedScan | None:
        """Returns what the scan shares; None: it is alone, or not the one that comes next."""
        found = self._by_table.get(id(table))
        if found is None or len(found.uses) < 2 or found.taken == len(found.uses):
            return None
        return found if found.uses[found.taken] == use else None


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
