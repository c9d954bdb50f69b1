"""Turns of threads: several at the same time, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rmqio.errors import TransportError


class Turns:
    """Lets threads take a turn together, or alone. Not reentrant. A thread that waits to be alone has precedence."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._is_alone = False
        self._waiting = 0

    @contextmanager
    def taken(self, *, alone: bool, timeout_s: float) -> Iterator[None]:
        """Take a turn. Raises `TransportError` if another thread keeps its turn for longer than `timeout_s`."""
        with self._changed:
            self._waiting += alone
            try:
                if not self._changed.wait_for(lambda: self._is_free(alone), timeout_s):
                    self._changed.notify_all()  # threads that waited for this one can continue
                    raise TransportError(f"another writer of this process has been sending for {timeout_s:.0f} s")
            finally:
                self._waiting -= alone
            self._is_alone = alone
            self._together += not alone
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._together -= not alone
                self._changed.notify_all()

    def _is_free(self, alone: bool) -> bool:
        if alone:
            return not self._is_alone and not self._together
        return not self._is_alone and not self._waiting
