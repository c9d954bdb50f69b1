"""Elements of a fragment's results: what each target makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.batches import Batch
from rmqio.sql.compile.description import OtherTarget, Target, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.timing import Timing
from rmqio.sql.runtime.groups.aggregate_groups import groups
from rmqio.sql.runtime.ranks.rank_groups import ranks


def outputs(target: Target, values: list[Any], side: int, time_us: int) -> Iterator[Any]:
    """Yields the elements of results.

    Args:
      target: of the fragment. Messages and rows stay in one `Batch`, without places. Rows with keys and groups become
        pairs.
      values: the results; at least one.
      side: for rows with keys, which input of the join they are.
      time_us: the time of the element that they come from: none of them may be older.
    """
    if isinstance(target, ToKeys) and target.timing is not None:
        yield from _by_key_and_time(values, side, target.timing)
    elif isinstance(target, ToKeys):
        yield from _by_key(values, side)
    elif isinstance(target, ToRanks):
        yield from ranks(values, target, time_us)
    elif isinstance(target, ToGroups):
        yield from groups(values, len(target.keys), target.window, time_us)
    elif isinstance(target, OtherTarget):
        yield from values
    else:
        yield Batch(values)


def _by_key(pairs: list[tuple[bytes, bytes]], side: int) -> Iterator[tuple[bytes, tuple[int, list[bytes]]]]:
    """One element per key."""
    rows: dict[bytes, list[bytes]] = {}
    for key, row in pairs:
        rows.setdefault(key, []).append(row)
    for key, found in rows.items():
        yield key, (side, found)


def _by_key_and_time(rows: list[tuple[bytes, bytes, int]], side: int, timing: Timing) -> Iterator[TimestampedValue]:
    """One element per key and window, at the window's start."""
    found: dict[tuple[bytes, int], list[bytes]] = {}
    for key, row, time_us in rows:
        for prefix, start_us in timing.places(time_us):
            found.setdefault((prefix + key, start_us), []).append(row)
    for (key, start_us), members in found.items():
        yield TimestampedValue((key, (side, members)), Timestamp(micros=start_us))
