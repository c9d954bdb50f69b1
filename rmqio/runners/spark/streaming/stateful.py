"""Runs a level as Spark's stateful operator. Imports Beam in tasks only.

For each level of a query, Spark starts a process that only asks which states there are. An import of Beam would delay
that process by seconds for nothing.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

_DRIVERS_WORKER: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"


class LevelProcessor(StatefulProcessor):
    """Runs a level. Spark's keys are the buckets."""

    def __init__(self, task: bytes, check: Callable[[], None]) -> None:
        """Args: `task`: a pickled `LevelTask`; `check`: raises an error in a process that cannot run it."""
        self._task = task
        self._check = check

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if getattr(sys.modules["__main__"].__spec__, "name", "") == _DRIVERS_WORKER:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  it prints its actions to the user's terminal

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the only state: entries of bytes."""
        self._state = handle.getMapState("entries", "key binary", "value binary")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Runs the level over the rows of a bucket in a micro-batch, and yields the rows that leave it."""
        self._check()
        from rmqio.runners.spark.streaming.state import SparkEntries
        from rmqio.runners.spark.streaming.worker import run_bucket

        task = pickle.loads(self._task)
        plain = ((row.channel, row.bucket, _bytes(row.key), _bytes(row.value) or b"") for row in rows)
        for channel, bucket, found, value in run_bucket(task, key[0], plain, SparkEntries(self._state)):
            yield Row(channel=channel, bucket=bucket, key=found, value=value)

    def close(self) -> None:
        """Does nothing: the next micro-batch uses what this process keeps."""


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
