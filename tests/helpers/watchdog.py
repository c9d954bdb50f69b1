"""Checks that work ends, and leaves no threads or sockets behind."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from tests.helpers.waiting import patience, until

T = TypeVar("T")

_SETTLE_S = 10.0
"""The other end of a connection closes a moment later."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """Returns or raises what the work does. Fails with the stacks of all threads if the work takes longer.

    A slow machine gets more time, by the factor `patience`.
    """
    seconds *= patience()
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001  # raised again by the waiting thread
            failure.append(error)

    thread = threading.Thread(target=run, name="rmqio-test-operation", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise AssertionError(f"hangs: not done within {seconds:g} s\n{_stacks()}")
    if failure:
        raise failure[0]
    return outcome[0]


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """Asserts that this process has no more threads, sockets or pipes afterwards than before, not even as garbage."""
    threads, descriptors = set(threading.enumerate()), _descriptors()
    yield

    def left() -> list[str]:
        more = _descriptors() - descriptors
        return [*sorted(more), *sorted(map(repr, set(threading.enumerate()) - threads))]

    until(lambda: not left(), "nothing is left behind", details=left, still_s=_SETTLE_S, pause_s=0.02)


def _descriptors() -> set[str]:
    """Returns the sockets and pipes of this process by their inode. Empty if there is no /proc."""
    found = set()
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{name}")
                if target.startswith(("socket:", "pipe:")):
                    found.add(target)
    return found


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"--- {names.get(ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
