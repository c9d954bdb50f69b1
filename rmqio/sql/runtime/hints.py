"""Types of elements, for Beam."""

from __future__ import annotations

from typing import Any

from apache_beam.typehints import Tuple

from rmqio.sql.compile.description import OtherTarget, Target, ToGroups, ToKeys, ToRanks
from rmqio.transforms.parts import BatchConstraint


def hint_of(target: Target) -> Any:
    """Returns the type of the elements of a target."""
    if isinstance(target, OtherTarget):
        return target.hint
    if isinstance(target, (ToGroups, ToRanks)):
        return Tuple[bytes, bytes]
    return Tuple[bytes, Tuple[int, list[bytes]]] if isinstance(target, ToKeys) else BatchConstraint(Any)
