"""The scans of a job that share the decoding of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Fragment, ToGroups, ToKeys, ToRanks, ToTable

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
