"""How rows are gathered, and how often a write is tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqio.errors import LocalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """When a batch is written. The end of a bundle writes all that is left.

    Args:
      max_rows: rows of a batch.
      max_bytes: about so many bytes of a batch. A larger row is a batch of its own.
      max_wait_s: a row waits at most so long, if the bundle lasts: a stream on the Direct runner is one bundle. None:
        as long as the bundle.
      max_total_bytes: about so many bytes wait, over all destinations. When there are more, the largest batch is
        written.
    """

    max_rows: int = 500
    max_bytes: int = 1 << 20
    max_wait_s: float | None = 1.0
    max_total_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "max_total_bytes"):
            _require_count("Batching", name, getattr(self, name))
        if self.max_wait_s is not None:
            _require_seconds("Batching", "max_wait_s", self.max_wait_s)
        if self.max_total_bytes < self.max_bytes:
            raise LocalError(
                f"Batching.max_total_bytes is {self.max_total_bytes}, and max_bytes {self.max_bytes}: no batch could "
                "become that large; lower max_bytes"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a write that failed is tried again: after waits that double, each between half of it and all of it.

    Args:
      first_wait_s, max_wait_s: the first wait, and the longest.
      give_up_after_s: the bundle fails after so long, and the runner decides what follows.
    """

    first_wait_s: float = 0.1
    max_wait_s: float = 10.0
    give_up_after_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("first_wait_s", "max_wait_s"):
            _require_seconds("Retry", name, getattr(self, name))
        if not isinstance(self.give_up_after_s, (int, float)) or self.give_up_after_s < 0:
            raise LocalError(f"Retry.give_up_after_s is {self.give_up_after_s!r}; it must be seconds, 0 for no retry")


def _require_count(kind: str, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LocalError(f"{kind}.{name} is {value!r}; it must be a whole number of at least 1")


def _require_seconds(kind: str, name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise LocalError(f"{kind}.{name} is {value!r}; it must be seconds, more than 0")
