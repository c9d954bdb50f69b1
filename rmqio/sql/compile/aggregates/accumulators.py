"""How an aggregate accumulates, whether built in or of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How an aggregate accumulates.

    Attributes:
      start: the accumulator of no rows, as Python's source.
      add: source that adds `{value}` to `{acc}`; the value is never None.
      hint: its type, for msgspec.
      merge: makes one of two.
      finish: makes the result.
      constants: what `start` and `add` call, by the names there.
    """

    start: str
    add: str
    hint: Any
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
