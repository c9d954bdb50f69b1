"""PySpark's worker daemon with Beam imported before it forks, so that a new worker starts in milliseconds.

Sessions that the runner starts set it as `spark.python.daemon.module`. Importing Beam takes seconds, and Spark starts
new workers whenever more tasks run than before.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys

# A process that forks must have no other threads. Arrow's allocator would start one, which workers never had, as a fork
# leaves it behind.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
with contextlib.redirect_stdout(sys.stderr):  # the daemon talks to Spark through stdout
    logging.disable(logging.WARNING)  # Beam warns about optional modules that are not installed
    # Another Beam than the driver's may lack a name. Each task then fails, with an error that says so
    with contextlib.suppress(ImportError):
        importlib.import_module("apache_beam")  # the whole package, since the modules of DoFns import it
        importlib.import_module("rmqio.runners.spark.worker.task")
    logging.disable(logging.NOTSET)

from pyspark import daemon

from rmqio.pyspark.chatter import print_exc_unless_gone

if __name__ == "__main__":
    # PySpark's workers collect garbage after each task. With Beam loaded, this takes 0.1 s, most of a small task's
    # time. The objects that are loaded here are permanent. The collector skips frozen objects, so their memory also
    # stays shared.
    gc.collect()
    gc.freeze()
    # A task keeps the accumulators that it combines by key. They have no cycles, but with 100,000 keys the repeated
    # search for cycles took a fifth of the task's time.
    gc.set_threshold(50_000, 20, 20)
    daemon.traceback.print_exc = print_exc_unless_gone  # type: ignore[attr-defined]
    daemon.manager()
