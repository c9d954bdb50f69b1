"""An unbounded read that stays up: what it costs when nothing arrives, and how fast it is when something does.

Runs in a worker process: the pipeline in a thread, which ends with the process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, Record, StartFrom

_failures: list[str] = []


def start(name_server: str, topic: str, arrivals: str, runner: Sequence[str] = ()) -> dict[str, Any]:
    """Start reading; each arrival becomes a line of the file `arrivals`: its latency in nanoseconds.

    `runner`: arguments for `rmqio.runners.options`, for example `--runner=SparkRunner`; none: `FnApiRunner`.
    """
    threading.Thread(target=_run, args=(name_server, topic, arrivals, list(runner)), daemon=True).start()
    return {"started": True}


def cpu(seconds: float) -> dict[str, Any]:
    """CPU seconds that this process, all threads, uses while so much time passes."""
    before, started = time.process_time(), time.monotonic()
    time.sleep(seconds)
    used, passed = time.process_time() - before, time.monotonic() - started
    if _failures:
        raise RuntimeError(f"the pipeline failed: {_failures[0]}")
    return {"cpu_seconds": used, "wall_seconds": passed, "arrived": 0}


def _run(name_server: str, topic: str, arrivals: str, runner: list[str]) -> None:
    try:
        if runner:
            from rmqio.runners import options  # it knows the runners by name

            pipeline = beam.Pipeline(options=options(runner))
        else:
            pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
        with pipeline:
            records = pipeline | ReadFromRocketMQ(topic, name_server=name_server, start=StartFrom.earliest())
            _ = records | beam.Map(_note, arrivals)
    except Exception as error:  # noqa: BLE001  # the thread must not die unheard
        _failures.append(repr(error))


def _note(record: Record, path: str) -> None:
    # One short write in append mode: whole lines, also from several processes.
    line = b"%d\n" % (time.time_ns() - int(record.body))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
