"""The driver's description of a fused stage for a worker: plain values that can be pickled, no Beam or Spark objects.

Rows between stages have four columns: `channel` (the output of the stage), `bucket` (the partition to which a shuffle
sends the row), `key` (encoded, for grouped rows) and `value` (many encoded elements). A row holds a run of elements
rather than one, because a row costs more than an element, in Python and in Spark.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmqio.runners.spark.bootstrap import Bootstrap

ROW_DDL: Final = "channel int, bucket int, key binary, value binary"
RESIDUAL_CHANNEL: Final = -1
WRITE_URN: Final = "rmqio:spark:write:v1"  # the transforms at the end of a stage


class Form(enum.Enum):
    """How rows hold the elements of a PCollection."""

    PLAIN = "plain"  # value: encoded windowed elements, one after the other
    DEALT = "dealt"  # the same, but each row is for one partition
    GROUPED = "grouped"  # a key and a run of values, for a GroupByKey
    KEYED = "keyed"  # a key and a run of whole elements, for a DoFn with state or timers
    # In streaming: for each window, packed keys with their runs
    WINDOWS = "windows"  # runs of values, for a GroupByKey
    STATEFUL = "stateful"  # runs of whole elements, for a DoFn with state or timers


class Grouping(enum.Enum):
    """The facts about an element that a GroupByKey needs besides its key and value."""

    GLOBAL = "global"  # one group for each key
    WINDOWED = "windowed"  # one group for each key and window, also if windows merge; fires once
    TRIGGERED = "triggered"  # Beam's trigger driver decides; the elements of a key are held in memory


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A GroupByKey, for its writing side and its reading side."""

    grouping: Grouping
    kv_coder_id: str  # the coder of the input, KV<K, V>
    windowing_id: str


@dataclass(frozen=True, slots=True)
class Output:
    """One form in which one output PCollection of a stage is written."""

    transform_id: str
    channel: int
    pcollection_id: str
    form: Form
    buckets: int


@dataclass(frozen=True, slots=True)
class Input:
    """The input of a stage. `group` is set if the stage begins with the reading side of a GroupByKey."""

    transform_id: str
    form: Form
    group: GroupSpec | None = None
    impulse: bool = False


@dataclass(frozen=True, slots=True)
class SideInput:
    """A side input of one of the stage's transforms. `name` is the key of its broadcast."""

    transform_id: str
    tag: str
    name: str
    multimap: bool
    coder_id: str  # the coder of the windowed elements


@dataclass(frozen=True, slots=True)
class StageTask:
    """A fused stage as a worker runs it."""

    stage_id: int
    name: str
    descriptor: bytes  # ProcessBundleDescriptor
    input: Input
    outputs: tuple[Output, ...]
    side_inputs: tuple[SideInput, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)  # of the pipeline, for ValueProviders and file systems
    bootstrap: Bootstrap | None = None  # makes user code importable


@dataclass(slots=True)
class TaskReport:
    """The report that one finished task sends to the driver besides its rows."""

    process_id: int
    metrics: list[bytes] = field(default_factory=list)  # encoded MonitoringInfos
    finalizers: list[bytes] = field(default_factory=list)  # pickled callbacks
    residuals: int = 0
    delay_s: float = 0.0  # the shortest delay that the residuals request
    warnings: list[tuple[str, str, str, int]] = field(default_factory=list)  # message, category, file, line
