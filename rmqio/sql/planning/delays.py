"""By how much the times of a relation's rows can be behind the watermark.

The rows of a table are not: what is older than the watermark is late. A row of an interval join is there when its last
partner has come, and then its first one is older. Windows over such rows wait for as much longer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rmqio.sql.planning.plan import Aggregate, Interval, Join, Relation

_MS: Final = 1000
LEAST_BUCKET_US: Final = 1_000_000
"""Rows of a key are kept and forgotten together that are so near to each other."""


def delay_us(*relations: Relation) -> int:
    """Returns the microseconds, a whole number of milliseconds: the most of some relations."""
    return max(map(_delay_us, relations), default=0)


def _delay_us(relation: Relation) -> int:
    inputs = delay_us(*relation.inputs())
    if isinstance(relation, Join) and isinstance(relation.bound, Interval):
        return inputs + _own_delay_us(relation.kind, relation.bound)
    return inputs


def delayed(aggregate: Aggregate) -> Aggregate:
    """Returns the aggregate, whose window waits for rows that are behind the watermark."""
    if aggregate.window is None:
        return aggregate
    return replace(aggregate, window=replace(aggregate.window, delay_us=delay_us(aggregate.input)))


def bucket_us(kind: str, bound: Interval) -> int:
    """Returns the size of the pieces of time by which an interval join keeps its rows.

    A row of an outer side waits until the end of its piece. So it is half the interval there, as Flink does it.
    """
    width = bound.upper_us - bound.lower_us
    return max(LEAST_BUCKET_US, _up(width if kind == "INNER" else width // 2))


def kept_us(kind: str, bound: Interval) -> int:
    """Returns how long after the end of its piece of time the piece is kept: until no partner can come."""
    later = {"LEFT": bound.upper_us, "INNER": bound.upper_us, "RIGHT": -bound.lower_us}
    most = later.get(kind, max(bound.upper_us, -bound.lower_us))
    return _up(max(most, 0)) + _MS


def _own_delay_us(kind: str, bound: Interval) -> int:
    apart = _up(max(bound.upper_us, -bound.lower_us, 0))
    return apart if kind == "INNER" else max(apart, bucket_us(kind, bound) + kept_us(kind, bound))


def _up(micros: int) -> int:
    return -(-micros // _MS) * _MS
