"""A level as Spark's stateful operator. Imports Beam in tasks only: Spark starts a process for each level of a query.

That process just asks for the kinds of state, and would take seconds to import Beam for nothing.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

_DRIVERS_WORKER: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"


class LevelProcessor(StatefulProcessor):
    """Its keys are buckets; `task` is a pickled `LevelTask`."""

    def __init__(self, task: bytes) -> None:
        self._task = task

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if getattr(sys.modules["__main__"].__spec__, "name", "") == _DRIVERS_WORKER:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  it tells the user's terminal what it does

    def init(self, handle: Any) -> None:
        """Declares the one state: entries of bytes."""
        self._state = handle.getMapState("entries", "key binary", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The rows of a bucket in a micro-batch."""
        from rmqio.runners.spark.streaming.operator import run_bucket
        from rmqio.runners.spark.streaming.state.store import SparkEntries

        task = pickle.loads(self._task)
        plain = ((row.channel, row.bucket, _bytes(row.key), _bytes(row.value) or b"") for row in rows)
        for channel, bucket, found, value in run_bucket(task, key[0], plain, SparkEntries(self._state)):
            yield Row(channel=channel, bucket=bucket, key=found, value=value)

    def close(self) -> None:
        """Nothing: what is kept serves the next micro-batch."""


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
