"""The CPU time and memory of processes and of all that they have started."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

import psutil

_GONE: Final = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)


def tree(root: int, *, without: Collection[int] = ()) -> Iterator[psutil.Process]:
    """A process and all below it, also in sessions of their own; without those that are named, and all below them."""
    left = {*without}
    with suppress(*_GONE):
        parent = psutil.Process(root)
        yield parent
        for each in parent.children(recursive=True):  # parents come before their children
            with suppress(*_GONE):
                if each.pid in left or each.ppid() in left:
                    left.add(each.pid)
                else:
                    yield each


def cpu_s(root: int, *, without: Collection[int] = ()) -> float:
    """Seconds of CPU that a tree of processes has used, those that have ended included."""
    total = 0.0
    for each in tree(root, without=without):
        with suppress(*_GONE):
            used = each.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


def resident_mb(root: int) -> float:
    """The resident memory of a tree of processes, in MB; pages that several share count for each."""
    return sum(_resident(each) for each in tree(root)) / 1e6


def own_mb(process: psutil.Process) -> float:
    """The memory of a process that is its alone, in MB: files that it maps, and shared memory, are not counted."""
    with suppress(*_GONE):
        memory = process.memory_info()
        return max(memory.rss - memory.shared, 0) / 1e6
    return 0.0


def _resident(process: psutil.Process) -> int:
    with suppress(*_GONE):
        return int(process.memory_info().rss)
    return 0
