"""`windowed_orders.py` or `rmqio sql`, killed in a micro-batch whose messages are sent but which is not committed.

`python -m tests.helpers.pipelines.killed_before_commit BATCHES [sql FILE] OPTION...`: it may commit BATCHES
micro-batches first.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pipelines import windowed_orders
from rmqio.cli.main import main as rmqio
from rmqio.runners.spark.streaming.execution import Query

_batch = Query._batch


def _killed(self: Any, frame: Any, number: int) -> None:
    global left
    _batch(self, frame, number)  # all tasks have run, so all messages are sent
    if not left:
        os.killpg(0, signal.SIGKILL)
    left -= 1


if __name__ == "__main__":
    left = int(sys.argv.pop(1))
    Query._batch = _killed  # type: ignore[method-assign]
    sys.exit(rmqio() if sys.argv[1] == "sql" else windowed_orders.program.run(windowed_orders.build))
