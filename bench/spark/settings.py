"""The measurements and their settings; all of it is printed with the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

CORES: Final = 2
MASTER: Final = f"local[{CORES}]"
HEAP_MB: Final = 4096
"""The heap of every JVM that runs Spark."""

OURS: Final = "ours"
LOOPBACK: Final = "portable, LOOPBACK"
PROCESSES: Final = f"portable, {CORES} processes"
RDD: Final = "RDD"
DATAFRAME: Final = "DataFrame"
IN_PROCESS: Final = "FnApiRunner"
PEERS: Final[Sequence[str]] = (LOOPBACK, PROCESSES)
PLAIN: Final[Sequence[str]] = (RDD, DATAFRAME)


@dataclass(frozen=True, slots=True)
class Case:
    """Something that all sides do, and how much faster than the peer ours has to be."""

    name: str
    title: str
    target: float


PIPELINES: Final[Sequence[Case]] = (
    Case("pardo", "ParDo chain", 1.4),
    Case("combine", "lifted combine", 1.4),
    Case("group", "group by key", 2.0),
    Case("join", "side input join", 2.0),
    Case("stages", "ten small stages", 1.5),
)
READ: Final = Case("read", "ReadFromRocketMQ | Count", 1.3)
CASES: Final[Sequence[Case]] = (*PIPELINES, READ)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    elements: int = 4_000_000
    messages: int = 1_000_000
    """The number in the case `read`."""
    message_bytes: int = 100
    repeats: int = 5

    @classmethod
    def quick(cls) -> Plan:
        """To see that everything works; not for figures."""
        return cls(elements=10_000, messages=20_000, repeats=2)

    def describe(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)
