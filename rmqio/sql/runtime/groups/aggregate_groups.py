"""Groups of a batch, as elements: at the times of their windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.planning.plan import Window
from rmqio.sql.rows import key_bytes, pack_group
from rmqio.sql.runtime.groups.windows import bounds_at, last_us, times_of


def groups(values: list[Any], width: int, window: Window | None, earliest_us: int) -> Iterator[Any]:
    """Yields (bytes of the keys, payload) for each group of a batch, at the times of its windows.

    Args:
      values: pairs ((*keys, bucket), accumulators).
      width: the number of keys.
      window: the windows; None: there is no bucket.
      earliest_us: the batch's own time: no element may be older.
    """
    for group, accumulators in values:
        keys = group[:width]
        if window is not None and window.has_own_bounds:
            for bounds in bounds_at(window, group[width]):
                bounded = *keys, *bounds
                at = Timestamp(micros=last_us(window, bounds[1]) + window.delay_us)
                yield TimestampedValue((key_bytes(bounded), pack_group(bounded, accumulators)), at)
            continue
        element = key_bytes(keys), pack_group(keys, accumulators)
        if window is None:
            yield element
            continue
        for micros in times_of(window, group[width], earliest_us):
            yield TimestampedValue(element, Timestamp(micros=micros))
