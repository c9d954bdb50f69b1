"""Waits for any of several readers or answers on several sockets at once."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Collection, Sequence

from rmqio.client.connections.session import Session
from rmqio.client.connections.wakeup import Wakeup
from rmqio.client.environment import Environment
from rmqio.client.reading.reader import PipelinedReader

_NOBODY_TO_WAIT_FOR_MS = 10.0
"""Used when another thread makes the connection to wait on, or sockets without descriptors take turns."""


class Waiter:
    """Blocks threads until a reader is ready or an answer has arrived. Thread-safe; each thread waits for its own."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._local = threading.local()

    def wait(self, readers: Sequence[PipelinedReader], timeout_ms: float) -> bool:
        """Return whether one of the readers becomes ready within this time."""
        clock = self._environment.clock
        deadline = clock() + timeout_ms / 1000
        while True:
            if any(reader.is_ready() for reader in readers):  # this also lets each reader send and retry
                return True
            remaining_ms = (deadline - clock()) * 1000
            if remaining_ms <= 0:
                return False
            due_ms = min((reader.due_in_ms() for reader in readers), default=remaining_ms)
            self._wait_once(readers, min(remaining_ms, due_ms))

    def _wait_once(self, readers: Sequence[PipelinedReader], timeout_ms: float) -> None:
        waiting = [(reader, reader.session) for reader in readers if not reader.is_backing_off]
        sessions = {session for _, session in waiting if session is not None and not session.is_closed}
        if not sessions:
            self._environment.sleep(min(timeout_ms, _NOBODY_TO_WAIT_FOR_MS if waiting else timeout_ms) / 1000)
            return
        for session in sessions:
            if session.fileno() < 0:  # a transport without a descriptor: only its own recv can wait
                session.pump(timeout_ms)
                return
        self._watch(sessions, lambda: any(reader.has_answer for reader in readers), timeout_ms)

    def wait_for_news(
        self, sessions: Collection[Session], has_news: Callable[[], bool], timeout_ms: float, *, is_stuck: bool = False
    ) -> None:
        """Return when something happens on one of the sessions, when `has_news` is true, or after this time.

        `is_stuck`: the wait also depends on something that no session reports, so it is kept short.
        """
        open_ones = {session for session in sessions if not session.is_closed}
        if len(open_ones) < len(sessions):
            return  # broken: that counts as news
        if is_stuck:
            timeout_ms = min(timeout_ms, _NOBODY_TO_WAIT_FOR_MS)
        if not open_ones:
            self._environment.sleep(timeout_ms / 1000)
            return
        without = [session for session in open_ones if session.fileno() < 0]
        if not without:
            self._watch(open_ones, has_news, timeout_ms)
            return
        connected = [session for session in open_ones if session.is_connected]
        moved = [session.pump(0) for session in connected]
        if any(moved) or has_news():
            return
        if len(open_ones) > 1 or not connected:
            timeout_ms = min(timeout_ms, _NOBODY_TO_WAIT_FOR_MS)
        if connected:
            next((session for session in connected if session.fileno() < 0), connected[0]).pump(timeout_ms)
        else:
            self._environment.sleep(timeout_ms / 1000)

    def _watch(self, sessions: Collection[Session], has_news: Callable[[], bool], timeout_ms: float) -> None:
        wakeup = self._wakeup()
        for session in sessions:
            session.watch(wakeup)
        try:
            # Another thread may have read our answer from the socket before we watched it.
            if not has_news():
                self._poll(sessions, wakeup, timeout_ms)
        finally:
            for session in sessions:
                session.unwatch(wakeup)

    def _poll(self, sessions: Collection[Session], wakeup: Wakeup, timeout_ms: float) -> None:
        poll = select.poll()
        poll.register(wakeup.fileno(), select.POLLIN)
        by_descriptor = {}
        for session in sessions:
            descriptor = session.fileno()
            if descriptor < 0:
                return  # just closed
            by_descriptor[descriptor] = session
            poll.register(descriptor, select.POLLIN if session.awaits_bytes else select.POLLOUT)
        for descriptor, _ in poll.poll(timeout_ms):
            found = by_descriptor.get(descriptor)
            if found is None:
                wakeup.clear()
            elif found.is_connected:
                found.pump(0)

    def _wakeup(self) -> Wakeup:
        found: Wakeup | None = getattr(self._local, "wakeup", None)
        if found is None or found.pid != os.getpid():
            found = self._local.wakeup = Wakeup()
        return found
