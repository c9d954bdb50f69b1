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
      add: source that adds `{value}` to `{acc}`; the value is never None, unless it takes NULL.
      hint: its type, for msgspec.
      merge: makes one of two.
      finish: makes the result.
      constants: what `start` and `add` call, by the names there.
      takes_null: rows whose value is NULL count, too.
      one: an expression, in source, for what `{value}` alone gives, if it can fail; else empty.
      take: source that adds `{one}` to `{acc}`.
    """

    start: str
    add: str
    hint: Any
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    takes_null: bool = False
    one: str = ""
    take: str = ""
