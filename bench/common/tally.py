"""The work of a run, in numbers that do not depend on the order, and the check that two sides did the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

QUEUE_FACTOR: Final = 0x9E3779B97F4A7C15
"""Odd, so that multiplying by it loses nothing modulo 2^64; JavaPeer.java has the same."""
_MASK: Final = (1 << 64) - 1


class BenchError(Exception):
    """The benchmark cannot be run, or one of its parts failed."""


class UnequalWork(BenchError):
    """Two sides that were to do the same did not: their figures must not be compared."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The work of one run. A sum that one kind of run does not make is None and is not compared."""

    count: int
    """Messages."""
    bytes: int | None = None
    """Sum of the bodies' sizes."""
    offsets: int | None = None
    """Sum over messages of (offset + 1) * (queue + 1) * QUEUE_FACTOR, modulo 2^64: which messages, in any order."""
    crcs: int | None = None
    """Sum of the CRC-32 of the bodies, top bit cleared as the broker stores it: what was in them."""

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Tally:
        """From the answer of a worker or of the Java peer."""
        return cls(answer["count"], answer.get("bytes"), answer.get("offsets"), answer.get("crcs"))


def offsets_sum(queue_id: int, offsets_plus_count: int) -> int:
    """One queue's part of `Tally.offsets`, from the sum of its messages' offsets plus their number."""
    return offsets_plus_count * (queue_id + 1) * QUEUE_FACTOR & _MASK


def require_equal(name: str, sides: Mapping[str, Tally]) -> None:
    """Raises `UnequalWork`, naming both sides and the sum, unless all sides' tallies agree in what both have."""
    seen: dict[str, tuple[str, int]] = {}
    for side, tally in sides.items():
        for field in fields(tally):
            value = getattr(tally, field.name)
            if value is None:
                continue
            first, expected = seen.setdefault(field.name, (side, value))
            if value != expected:
                raise UnequalWork(
                    f"{name}: the sides did unequal work: {field.name} of {first} is {expected}, of {side} {value}"
                )
