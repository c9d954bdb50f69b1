"""The source of bounded pipelines' elements, without Beam, whose import takes a query's planner seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ImpulsePlanner:
    """One empty element in the first micro-batch, and the end of time in the next. A `Planner`, see planned.py."""

    element_type = bytes
    is_bounded = True
    identity = ""

    def __init__(self, element: bytes) -> None:
        """Args: Beam's encoding of the element."""
        self._element = element

    def advance(self, position: Any, limits: Any, until_now: bool) -> Any:
        """Micro-batches done: 0, 1 and 2."""
        return min(2, (position or 0) + 1)

    def elements(self, begin: Any, end: Any, again: bool = False) -> Sequence[tuple[Any, float]]:
        return [(self._element, 1.0)] if not begin and end else []

    def partitions(self, position: Any) -> Mapping[str, int | None]:
        return {}

    def silent(self, position: Any) -> Mapping[str, tuple[int, int]]:
        return {}

    def has_ended(self, position: Any) -> bool:
        return bool(position == 2)

    def is_done(self, position: Any) -> bool:
        return self.has_ended(position)

    def shortened(self, position: Any, cuts: Mapping[str, int]) -> Any:
        return position

    def committed(self, position: Any, last: bool = False) -> None:
        """Nothing to tell anybody."""

    def lag(self, position: Any) -> Mapping[str, int]:
        return {}
