"""The timestamps of groups, which the writing side combines and the reading side merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apache_beam.transforms.window import TimestampCombiner

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing

    from rmqio.runners.spark.beam.private import TimestampCombinerImpl


def timestamp_combiner(windowing: Windowing) -> TimestampCombinerImpl | None:
    """Returns Beam's combiner for the timestamps of a group; None if the window alone determines the timestamp."""
    if windowing.timestamp_combiner == TimestampCombiner.OUTPUT_AT_EOW:
        return None
    return TimestampCombiner.get_impl(windowing.timestamp_combiner, windowing.windowfn)
