"""Rows for ranks, as elements: the first ones of each key of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.compile.description import ToRanks
from rmqio.sql.runtime.ranks.ranking import Ranking, payload

_LAST_US: Final = 1
"""By how much the last time of a window is before its end."""


def ranks(values: list[tuple[bytes, bytes, int | None]], target: ToRanks, earliest_us: int) -> Iterator[Any]:
    """Yields (bytes of the key, payload of packed rows) for each key of a batch; rows of windows, at their ends."""
    rows: dict[bytes, list[bytes]] = {}
    ends: dict[bytes, int | None] = {}
    for key, row, end in values:
        rows.setdefault(key, []).append(row)
        ends[key] = end
    first = None if target.ranking is None else _compiled(target.ranking)
    for key, found in rows.items():
        element = key, payload(found if first is None else first(found))
        end = ends[key]
        if end is None:
            yield element
        else:
            yield TimestampedValue(element, Timestamp(micros=max(end + target.delay_us - _LAST_US, earliest_us)))


@functools.lru_cache(maxsize=64)
def _compiled(ranking: Ranking) -> Callable[[Sequence[bytes]], list[bytes]]:
    return ranking.compiled()
