"""The source of bounded pipelines' elements. It does not import Beam, which would take the planning process seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqio.runners.spark.streaming.planning.planner import TriggerLimits


class ImpulsePlanner:
    """One empty element in the first micro-batch, and the end of time in the next one. A `Planner`, see planner.py.

    A position counts the micro-batches that are done: 0, 1 or 2.
    """

    element_type = bytes
    is_bounded = True
    identity = ""

    def __init__(self, element: bytes) -> None:
        """Args: `element`: the element in Beam's encoding."""
        self._element = element

    def advance(self, position: int | None, limits: TriggerLimits, until_now: bool) -> int:
        return min(2, (position or 0) + 1)

    def elements(self, begin: int | None, end: int | None, again: bool = False) -> Sequence[tuple[bytes, float]]:
        return [(self._element, 1.0)] if not begin and end else []

    def partitions(self, position: int | None) -> Mapping[str, int | None]:
        return {}

    def silent(self, position: int | None) -> Mapping[str, tuple[int, int]]:
        return {}

    def has_ended(self, position: int | None) -> bool:
        return position == 2

    def is_done(self, position: int | None) -> bool:
        return self.has_ended(position)

    def shortened(self, position: int | None, cuts: Mapping[str, int]) -> int | None:
        return position

    def committed(self, position: int | None, last: bool = False) -> None:
        """Does nothing: there is nobody to inform."""

    def clock(self, position: int | None) -> None:
        """Time is real."""

    def lag(self, position: int | None) -> Mapping[str, int]:
        return {}
