"""The protocol between the source of a streaming query and the planners that transforms provide. Imports no Beam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from rmqio.runners.spark.streaming.micro_batch import Position

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much a micro-batch may read of one source."""

    max_records: int | None = None
    max_bytes: int | None = None
    may_cut: bool = False
    """Whether a read may stop before its planned end. False if Spark may run a stage again after its rows were read: on
    a cluster that loses a machine, the second run could read more, or less, than the first.
    """


class PlannerOf(Protocol[P]):
    """Plans the reads of one source, in a process of Spark's driver. Picklable.

    A position is a JSON value, and is all that Spark's checkpoint keeps. It is None for a new stream. The result of a
    method depends on its arguments only, with two exceptions: `advance`, and `is_done`, which also depends on the
    arguments of the last `advance`.
    """

    is_bounded: bool
    """Whether the source ends by itself."""
    identity: str
    """Identifies what the positions belong to. The checkpoint of a source with another identity is refused."""

    @property
    def element_type(self) -> object:
        """The type of the elements. Their coder is the one that is registered for it in Beam."""
        ...

    def advance(self, position: P | None, limits: TriggerLimits, until_now: bool) -> P | None:
        """Returns the position to which the next micro-batch reads; the same position if there is nothing new.

        With `until_now`, the source ends where it ends at the time of the first call.
        """
        ...

    def elements(self, begin: P | None, end: P | None, again: bool = False) -> Sequence[tuple[object, float]]:
        """Returns the elements that the micro-batch between two positions reads, each with its weight.

        `again`: the micro-batch may have run before, and must read the same: no part may be cut short now.
        """
        ...

    def partitions(self, position: P | None) -> Mapping[str, int | None]:
        """Returns the parts whose watermarks count, each with a watermark in microseconds or None.

        The watermark is set if the clock has advanced it.
        """
        ...

    def silent(self, position: P | None) -> Mapping[str, tuple[int, int]]:
        """Returns the parts that are read to their end but may have returned nothing yet: (watermark, patience).

        If nothing has come from a part for `patience` microseconds of the clock, its watermark advances to `watermark`,
        also in microseconds.
        """
        ...

    def has_ended(self, position: P | None) -> bool:
        """Returns whether nothing comes after the position, ever."""
        ...

    def is_done(self, position: P | None) -> bool:
        """Returns whether nothing comes after the position in this run, which may be limited by `until_now`."""
        ...

    def shortened(self, position: P | None, cuts: Mapping[str, int]) -> P | None:
        """Returns the position with parts moved back to where their read was cut short. Called only if some were."""
        ...

    def committed(self, position: P | None, last: bool = False) -> None:
        """Called in the driver after Spark has committed the micro-batch that ends at the position.

        Called once more when the query ends, with `last`.
        """
        ...

    def clock(self, position: P | None) -> float | None:
        """Returns processing time in seconds, if the source determines it as a TestStream does; None: real time."""
        ...

    def lag(self, position: P | None) -> Mapping[str, int]:
        """Returns how many records are left, by topic, as far as this was known when the position was planned."""
        ...


Planner = PlannerOf[Position]
"""A planner whose positions the runner stores and returns without looking at them."""


def opaque(planner: PlannerOf[P]) -> Planner:
    """Returns a planner as the runner sees it."""
    return cast(Planner, planner)


class Encoder(Protocol):
    """Encodes planned elements."""

    def encode(self, element: object) -> bytes: ...
