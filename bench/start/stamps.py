"""Marks of a program's start, on a clock that all processes of the machine share. Imports nothing that takes time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

FILE: Final = "RMQIO_BENCH_MARKS"
"""The environment variable with the file that marks are appended to."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def now() -> float:
    """Seconds since the machine started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started(pid: int) -> float:
    """When a process was started or forked, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[19]) / _TICKS


def mark(name: str, at: float | None = None) -> None:
    """Notes a moment; None: now. Of a name that is noted twice the first counts."""
    line = json.dumps({"name": name, "at": now() if at is None else at}) + "\n"
    # One write of a short line to a file that is open to append: processes do not mix theirs.
    with Path(os.environ[FILE]).open("a") as file:
        file.write(line)


def marked(owner: Any, method: str, *, begin: str = "", end: str = "") -> None:
    """From now on calls of a function are marked, before and after."""
    function: Callable[..., Any] = getattr(owner, method)

    def call(*arguments: Any, **named: Any) -> Any:
        if begin:
            mark(begin)
        try:
            return function(*arguments, **named)
        finally:
            if end:
                mark(end)

    setattr(owner, method, call)


def in_worker(value: Any) -> Any:
    """A function of the data, which marks the worker that calls it: it was forked by Spark's Python daemon."""
    mark("element")
    mark("worker", started(os.getpid()))
    mark("daemon", started(os.getppid()))
    return value


def read(file: Path) -> dict[str, float]:
    """The marks by name."""
    found: dict[str, float] = {}
    for line in file.read_text().splitlines():
        each = json.loads(line)
        found[each["name"]] = min(each["at"], found.get(each["name"], each["at"]))
    return found
