"""What waits until all stages of a bounded pipeline have ended, as a later one can fail: commits of group offsets.

Beam calls a finalizer when the stage of its bundle is done. The runners of rmqio say whose calls wait for the stages
behind it. Under other runners, nothing waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from types import TracebackType
from typing import Self

_LOGGER = logging.getLogger(__name__)
_lock = threading.Lock()
_endings: dict[str, Ending] = {}
"""By owner: the end that its calls wait for."""


class Ending:
    """The end of a pipeline. A context manager: if it has not come, what waits for it is forgotten."""

    def __init__(self) -> None:
        self._owners: set[str] = set()
        self._calls: dict[Hashable, tuple[int, Callable[[], object]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with _lock:
            for owner in self._owners:
                _endings.pop(owner, None)
            self._owners.clear()
            self._calls.clear()

    def awaited_by(self, owners: Iterable[str]) -> None:
        """Let calls of these owners wait."""
        with _lock:
            for owner in owners:
                self._owners.add(owner)
                _endings[owner] = self

    def come(self) -> None:
        """Make the calls that wait. Only logs errors, since in Beam a failed finalizer fails no pipeline."""
        with _lock:
            calls = [call for _, call in self._calls.values()]
            self._calls.clear()
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001
                _LOGGER.warning("a bundle finalizer failed: %s: %s", type(error).__name__, error)


def waits(owner: str, key: Hashable, position: int, call: Callable[[], object]) -> bool:
    """Whether a call waits for the end of its pipeline; if not, make it now.

    Of several calls with one key, the one with the highest position waits.
    """
    with _lock:
        ending = _endings.get(owner)
        if ending is None:
            return False
        known = ending._calls.get(key)
        if known is None or known[0] <= position:
            ending._calls[key] = position, call
        return True
