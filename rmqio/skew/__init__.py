"""Skew: transforms that take the load off hot keys, and a report of the keys and queues that are heavy."""

from __future__ import annotations

from rmqio.skew.batches import BoundedGroupIntoBatches
from rmqio.skew.report import HeavyKey, MeasureKeys, QueueLoad, Shuffle, SkewReport, measure_shuffles
from rmqio.skew.salted import SaltedCombinePerKey

__all__ = [
    "BoundedGroupIntoBatches",
    "HeavyKey",
    "MeasureKeys",
    "QueueLoad",
    "SaltedCombinePerKey",
    "Shuffle",
    "SkewReport",
    "measure_shuffles",
]
