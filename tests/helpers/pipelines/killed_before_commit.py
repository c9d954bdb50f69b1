"""`windowed_orders.py`, killed in a micro-batch whose totals are sent but which Spark has not committed.

`python -m tests.helpers.pipelines.killed_before_commit BATCHES OPTION...`: it may commit BATCHES micro-batches first.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from rmqio.pipelines import windowed_orders
from rmqio.runners.spark.streaming.query import Query

_batch = Query._batch


def _killed(self: Any, frame: Any, number: int) -> None:
    global left
    _batch(self, frame, number)  # all tasks have run, so all totals are sent
    if not left:
        os.killpg(0, signal.SIGKILL)
    left -= 1


if __name__ == "__main__":
    left = int(sys.argv.pop(1))
    Query._batch = _killed  # type: ignore[method-assign]
    sys.exit(windowed_orders.main())
