"""Checks that work ends, and leaves no threads or sockets behind."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TypeVar
from unittest.mock import patch

from rmqio.client import session, transport
from tests.helpers.waiting import patience, until

T = TypeVar("T")

_SETTLE_S = 10.0
"""What another thread closes is closed a moment later."""


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
    """Asserts that clients leave no threads, sockets or pipes that they began meanwhile, not even as garbage.

    What other code of this process opens or starts does not count.
    """
    threads, opened = _threads(), set[str]()

    class Socket(socket.socket):
        def __init__(self, *args: int) -> None:
            super().__init__(*args)
            opened.add(_target(self.fileno()))

    def pipe() -> tuple[int, int]:
        ends = os.pipe()
        opened.add(_target(ends[0]))  # both ends have the same one
        return ends

    def left() -> list[str]:
        return [*sorted(opened & _descriptors()), *sorted(map(repr, _threads() - threads))]

    with (
        patch.object(transport, "socket", SimpleNamespace(**{**vars(socket), "socket": Socket})),
        patch.object(session, "os", SimpleNamespace(**{**vars(os), "pipe": pipe})),
    ):
        yield
    until(lambda: not left(), "nothing is left behind", details=left, still_s=_SETTLE_S, pause_s=0.02)


def _threads() -> set[threading.Thread]:
    """Returns the threads of clients and of their tests, by name."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("rmqio")}


def _descriptors() -> set[str]:
    """Returns what the descriptors of this process are, such as the inodes of sockets. Empty if there is no /proc."""
    with suppress(FileNotFoundError):
        return {_target(int(name)) for name in os.listdir("/proc/self/fd")}
    return set()


def _target(descriptor: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return ""


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"--- {names.get(ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
