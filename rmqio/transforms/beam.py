"""Makes Beam take a class in the hints of a function for our type of it, as it takes `list` for its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apache_beam.typehints.typehints import _KNOWN_PRIMITIVE_TYPES

__all__ = ["take_for"]


def take_for(constraints: Mapping[Any, Any]) -> None:
    """Changes Beam in this process, for good, as far as our own classes are concerned.

    Beam takes a class with other parameters, such as `Batch[Order]`, for `Any` then.
    """
    _KNOWN_PRIMITIVE_TYPES.update(constraints)
