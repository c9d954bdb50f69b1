"""The processes of all sides: started when first asked for a run, ended with the `with` block."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bench.common.process import Worker
from bench.common.report import say
from bench.spark.portable.jars import class_path
from bench.spark.portable.jobserver import JobServer
from bench.spark.settings import CORES, DATAFRAME, LOOPBACK, OURS, PROCESSES, RDD


class Sides:
    """Ours, both forms of the peer, each with a job server of its own, and plain PySpark."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._workers: dict[str, Worker] = {}
        self._starts: dict[str, Callable[[], Worker]] = {
            "ours": lambda: self._start("ours", folder=str(self._folder)),
            "loopback": lambda: self._start_portable("loopback", 0),
            "processes": lambda: self._start_portable("processes", CORES),
            "plain": lambda: self._start("plain", folder=str(self._folder)),
        }

    def __enter__(self) -> Self:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqio-bench-spark-"))
        self._folder = Path(folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, side: str, name: str, elements: int) -> dict[str, Any]:
        """One run: its seconds and its result."""
        worker, function = {
            OURS: ("ours", "run"),
            LOOPBACK: ("loopback", "run"),
            PROCESSES: ("processes", "run"),
            RDD: ("plain", "run_rdd"),
            DATAFRAME: ("plain", "run_dataframe"),
        }[side]
        if worker not in self._workers:
            self._workers[worker] = self._starts[worker]()
        return self._workers[worker].call(function, {"name": name, "elements": elements})

    def _start_portable(self, name: str, processes: int) -> Worker:
        jars = class_path()
        say(f"starting Beam's job server ({name}) ...")
        server = self._stack.enter_context(JobServer(f"job server ({name})", jars))
        return self._start("portable.driver", log=name, endpoint=server.endpoint, processes=processes)

    def _start(self, module: str, *, log: str = "", **arguments: Any) -> Worker:
        worker = Worker(f"bench.spark.{module}", self._folder / f"{log or module}.log")
        self._stack.enter_context(worker)
        worker.call("start", arguments)
        return worker
