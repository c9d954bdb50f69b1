"""The dimension tables of this process: one copy of each, for all DoFns and threads that look up in it.

The first one that needs a table loads it, and the others wait. A table with `refresh` is loaded again by a thread of
its own: the old copy serves until the new one is there, and goes on if loading fails. A table that nobody uses any more
is dropped when another one is needed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from rmqio.errors import RmqioError
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.errors import SqlError
from rmqio.sql.lookup.definition import Dimension
from rmqio.sql.lookup.table import LookupTable, Row

_IDLE_S: Final = 60.0
"""A table without users is kept for so long: tasks of one stage come one after another."""
_LOGGER: Final = logging.getLogger(__name__)

_lock = threading.Lock()
_tables: dict[str, _Shared] = {}


class Live(LookupTable, Protocol):
    """A table that keeps itself up to date."""

    def stop(self) -> None:
        """Ends what keeps it up to date. Idempotent."""
        ...


class SharedLease:
    """See `Lease`."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        token = object()
        shared.users.add(token)
        weakref.finalize(self, shared.give_back, token).atexit = False

    def getter(self) -> Callable[[Any], Sequence[Row]]:
        """See `Lease.getter`."""
        return self.table().get

    def table(self) -> LookupTable:
        """Returns the table as it is now. The first one loads it. Raises `SqlError`."""
        shared = self._shared
        if not shared.is_loaded:
            with shared.loading:
                if not shared.is_loaded:
                    shared.load()
        return shared.table


class _Shared:
    """A table, and how many use it."""

    table: LookupTable

    def __init__(self, dimension: Dimension) -> None:
        self.dimension = dimension
        self.loading = threading.Lock()
        self.is_loaded = False
        self.users: set[object] = set()
        self.idle_since = time.monotonic()
        self._stopped = threading.Event()
        self._live: Live | None = None

    def load(self) -> None:
        """Loads the table, and begins to keep it up to date. Raises `SqlError`."""
        begun = time.monotonic()
        name = self.dimension.table.name
        try:
            self.table = self._new()
        except RmqioError as error:
            raise SqlError(f"the dimension table {name} cannot be loaded: {error}") from error
        self.is_loaded = True
        _LOGGER.info("dimension %s is loaded in %.1f s", name, time.monotonic() - begun)
        if self._live is not None:
            threading.Thread(target=self._watch, name=f"watch {name}", daemon=True).start()
        elif self.dimension.table.options.of_connector.refresh_ms:
            threading.Thread(target=self._refresh, name=f"refresh {name}", daemon=True).start()

    def _new(self) -> LookupTable:
        if self.dimension.table.options.connector in (FILES, DATABASE):
            from rmqio.sql.lookup.loading import load

            return load(self.dimension)
        from rmqio.sql.lookup.topic import TopicTable

        self._live = table = TopicTable(self.dimension)
        table.start()
        return table

    def _refresh(self) -> None:
        name, every_s = self.dimension.table.name, self.dimension.table.options.of_connector.refresh_ms / 1000
        while not self._stopped.wait(every_s):
            if self._is_dropped():
                return
            try:
                self.table = self._new()
            except Exception as error:  # noqa: BLE001  # the thread must go on, whatever a driver raises
                _LOGGER.warning("dimension %s cannot be loaded again, its last copy stays: %s", name, error)

    def _watch(self) -> None:
        """Ends a table that keeps itself up to date when nobody uses it any more."""
        while not self._stopped.wait(_IDLE_S / 2) and not self._is_dropped():
            pass

    def _is_dropped(self) -> bool:
        if self.is_idle():
            with _lock:
                if self.is_idle():
                    _drop(self)
                    return True
        return False

    def give_back(self, user: object) -> None:
        """Notes that a user is gone."""
        # Called by the garbage collector, perhaps within a block of the lock: it must not wait for it.
        self.idle_since = time.monotonic()
        self.users.discard(user)

    def is_idle(self) -> bool:
        """Returns whether nobody has used it for a while."""
        return not self.users and time.monotonic() - self.idle_since > _IDLE_S

    def stop(self) -> None:
        """Ends its threads. Idempotent."""
        self._stopped.set()
        if self._live is not None:
            self._live.stop()


def acquire(dimension: Dimension) -> SharedLease:
    """Returns the table of a dimension, for as long as the lease lives. It is loaded when it is needed first."""
    identity = dimension.identity()
    with _lock:
        for each in [each for each in _tables.values() if each.is_idle()]:
            _drop(each)
        shared = _tables.get(identity)
        if shared is None:
            shared = _tables[identity] = _Shared(dimension)
        return SharedLease(shared)


def close_all() -> None:
    """Drops all tables of this process, and ends their threads."""
    with _lock:
        for each in list(_tables.values()):
            _drop(each)


def _drop(shared: _Shared) -> None:
    """Removes a table, whose lock is held."""
    shared.stop()
    identity = shared.dimension.identity()
    if _tables.get(identity) is shared:
        del _tables[identity]


def _forget_after_fork() -> None:
    # The parent's threads are not here, and its lock can be held.
    global _lock
    _lock = threading.Lock()
    _tables.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
