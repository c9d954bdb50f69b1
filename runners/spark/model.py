"""What the driver tells a worker about a fused stage: plain values that pickle, no Beam and no Spark objects.

Rows between stages have four columns: `channel` (which output of the stage), `bucket` (which partition a shuffle puts
the row in), `key` (encoded, for grouped rows) and `value` (many encoded elements). A row carries a run of elements, not
one: a row costs more than an element, in Python and in Spark.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ROW_DDL: Final = "channel int, bucket int, key binary, value binary"
RESIDUAL_CHANNEL: Final = -1
WRITE_URN: Final = "rmqio:spark:write:v1"  # of the transforms at the end of a stage


class Form(enum.Enum):
    """How the elements of a PCollection lie in rows."""

    PLAIN = "plain"  # value: encoded windowed elements, one after the other
    DEALT = "dealt"  # the same, each row meant for one partition
    GROUPED = "grouped"  # key, and a run of values, for a GroupByKey
    KEYED = "keyed"  # key, and a run of whole elements, for a DoFn with state or timers
    # In streaming: for each window, packed keys with their runs
    WINDOWS = "windows"  # of values, for a GroupByKey
    STATEFUL = "stateful"  # of whole elements, for a DoFn with state or timers


class Grouping(enum.Enum):
    """How much a GroupByKey must know of an element besides key and value."""

    GLOBAL = "global"  # one group a key
    WINDOWED = "windowed"  # one group a key and window, also when windows merge; fires once
    TRIGGERED = "triggered"  # Beam's trigger driver decides; a key's elements are held in memory


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A GroupByKey, for its writing and for its reading side."""

    grouping: Grouping
    kv_coder_id: str  # of the input, KV<K, V>
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
    """What a stage reads. `group` is set if the stage begins with the reading side of a GroupByKey."""

    transform_id: str
    form: Form
    group: GroupSpec | None = None
    impulse: bool = False


@dataclass(frozen=True, slots=True)
class SideInput:
    """A side input of a transform of the stage; `name` is the key of its broadcast."""

    transform_id: str
    tag: str
    name: str
    multimap: bool
    coder_id: str  # of the windowed elements


@dataclass(frozen=True, slots=True)
class StageTask:
    """A fused stage as a worker runs it."""

    stage_id: int
    name: str
    descriptor: bytes  # ProcessBundleDescriptor
    input: Input
    outputs: tuple[Output, ...]
    side_inputs: tuple[SideInput, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # the pipeline's, for ValueProviders and file systems
    bootstrap: Any = None  # what makes user code importable: see bootstrap.py


@dataclass(slots=True)
class TaskReport:
    """What one finished task tells the driver, besides its rows."""

    process_id: int
    metrics: list[bytes] = field(default_factory=list)  # MonitoringInfo
    finalizers: list[bytes] = field(default_factory=list)  # pickled callbacks
    residuals: int = 0
    delay_s: float = 0.0  # the shortest that the residuals ask for
    warnings: list[tuple[str, str, str, int]] = field(default_factory=list)  # message, category, file, line
