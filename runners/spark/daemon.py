"""PySpark's worker daemon with Beam imported before it forks, so that a new worker starts in milliseconds.

Set as `spark.python.daemon.module` for sessions that the runner starts. Importing Beam takes seconds, and Spark starts
workers whenever more tasks run than before.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys

with contextlib.redirect_stdout(sys.stderr):  # stdout is the daemon's line to Spark
    logging.disable(logging.WARNING)  # Beam warns of modules that it would use if they were there
    import apache_beam  # all of it, as a DoFn's module asks for it

    import rmqio.runners.spark.worker.task

    logging.disable(logging.NOTSET)

from pyspark import daemon

from rmqio.pyspark.chatter import told

if __name__ == "__main__":
    del apache_beam, rmqio
    # PySpark's workers collect garbage after each task. With Beam loaded that takes 0.1 s, most of a small task's time;
    # what is loaded here is there to stay, and frozen it is not looked at, and its memory stays shared.
    gc.collect()
    gc.freeze()
    # A task keeps what it combines by key: looking again and again at that, for cycles that it has not, took a fifth of
    # its time with 100,000 keys.
    gc.set_threshold(50_000, 20, 20)
    daemon.traceback.print_exc = told  # type: ignore[attr-defined]
    daemon.manager()
