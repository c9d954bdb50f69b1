"""The common part of the worker processes of all sides: one timed run, and an end when the benchmark ends."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.spark.settings import HEAP_MB, MASTER

_ROOT: Final = Path(__file__).resolve().parents[2]
_POLL_S: Final = 1.0


def prepare() -> None:
    """Called once in each worker process, before it starts anything."""
    # Processes that Spark and Beam start have to find this package, and Beam starts the "python" that PATH has.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def spark_settings(folder: Path) -> dict[str, str]:
    """Settings that every Spark of the benchmark gets, by name."""
    return {
        "spark.master": MASTER,
        "spark.driver.memory": f"{HEAP_MB}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
    }


def timed(run: Callable[[str], Any]) -> dict[str, Any]:
    """Seconds and result of `run`, which writes its result, by `leave`, to the path that it is given."""
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-result-") as folder:
        path = Path(folder, "result.json")
        started = time.perf_counter()
        run(str(path))
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "result": json.loads(path.read_text(encoding="utf-8"))}


def leave(value: Any, path: str) -> None:
    """The last step of a pipeline, in whatever process it runs: a collection of one value, as JSON."""
    # A task that runs again writes the same again, in one step.
    part = Path(f"{path}.{os.getpid()}")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def _end_with(parent: int) -> None:
    # A worker that is in the middle of a run does not see that its input has ended; its JVM ends with it.
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
