"""The tables of this process: one of each, for all DoFns and threads that look up in it.

The first one that needs a table loads it, and the others wait. A thread loads it again from time to time; who has begun
with a version keeps it, and a version that nobody has is unmapped.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rmqio import telemetry
from rmqio.enrich.sources import Live, LiveSource, Topic
from rmqio.enrich.store import Held, Wanted, load
from rmqio.errors import LocalError, RmqioError

_LOGGER: Final = logging.getLogger(__name__)
_IDLE_S: Final = 60.0
"""A table without users is kept for so long: tasks of one stage come one after another."""
_NEW_S: Final = 3600.0
"""Rows that the cache has had for so long count as new at a start, if `refresh_s` does not say for how long."""
_lock = threading.Lock()
_tables: dict[tuple[Any, ...], _Shared] = {}


class Rows(Protocol):
    """A version of a table: see `MappedTable`."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def key_types(self) -> tuple[str, ...]: ...

    def get(self, keys: list[Any], times: list[int] | None = None, *, many: bool = False) -> list[Any]: ...

    def get_one(self, key: Any, time: int | None = None, *, many: bool = False) -> Any: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times at which a table is loaded again, and the answer to a load that fails.

    Attributes:
      refresh_s: the time between loads; None: never.
      max_age_s: look-ups fail if the rows are older; None: never.
      on_error: "keep_previous" or "fail".
    """

    refresh_s: float | None = 3600.0
    max_age_s: float | None = None
    on_error: str = "keep_previous"

    def __post_init__(self) -> None:
        for name in ("refresh_s", "max_age_s"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
                raise LocalError(f"{name} is {value!r}; it must be a number of seconds above 0, or None")
        if self.on_error not in ("keep_previous", "fail"):
            raise LocalError(f"on_refresh_error is {self.on_error!r}; it must be keep_previous or fail")
        if self.max_age_s is not None and self.refresh_s is None:
            raise LocalError("max_age_s needs refresh_s: without it, rows only become older")


class Lease:
    """A table that somebody uses, until nothing refers to the lease any more."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        token = object()
        shared.users.add(token)
        weakref.finalize(self, shared.give_back, token).atexit = False

    def rows(self) -> Any:
        """Returns the table as it is now: `Rows`, or those of a `LiveSource`. The first one loads it.

        Raises `RmqioError`.
        """
        return self._shared.rows()


class _Shared:
    def __init__(self, wanted: Wanted, schedule: Schedule, clock: Callable[[], float] = time.time) -> None:
        self.wanted, self.schedule = wanted, schedule
        self.users: set[object] = set()
        self.idle_since = time.monotonic()
        self._clock = clock
        self._loading = threading.Lock()
        self._now: tuple[Any, float] | None = None
        """Rows and age are one object: who takes them has those that belong together."""
        self._error: Exception | None = None
        self._live: Live | None = None
        self._held: Held | None = None
        self._stopped = threading.Event()

    def rows(self) -> Any:
        if self._now is None and self._live is None:
            with self._loading:
                if self._now is None and self._live is None:
                    self._first()
        if self._live is not None:
            rows, loaded_at = self._live.now()
        else:
            assert self._now is not None
            rows, loaded_at = self._now
        if self._error is not None and self.schedule.on_error == "fail":
            raise LocalError(f"{self.wanted.title} cannot be loaded again: {self._error}") from self._error
        limit = self.schedule.max_age_s
        if limit is not None and (age := self._clock() - loaded_at) > limit:
            why = f"; the last try failed: {self._error}" if self._error is not None else ""
            raise LocalError(
                f"the rows of {self.wanted.table.source.shown} are {age:,.0f} s old, and max_age_s is {limit:,.0f}{why}"
            )
        return rows

    def _first(self) -> None:
        source = self.wanted.table.source
        try:
            live = self._live_table()
            if live is not None:
                live.start()
                self._live = live
                target = self._watch
            else:
                if self.wanted.of_job and self._held is None:
                    self._held = Held(self.wanted.store().folder)
                self._load(self._oldest())
                target = self._refresh
        except RmqioError as error:
            why = str(error).removeprefix(source.shown).removeprefix(" cannot be read: ").removeprefix(": ")
            raise LocalError(f"{self.wanted.title} cannot be loaded: {why}") from error
        threading.Thread(target=target, name=f"refresh {source.shown}"[:60], daemon=True).start()

    def _live_table(self) -> Live | None:
        source = self.wanted.table.source
        if isinstance(source, Topic):
            from rmqio.enrich.live import LiveTable

            return LiveTable(self.wanted)
        return source.live(self.wanted) if isinstance(source, LiveSource) else None

    def _oldest(self) -> float:
        """The time after which rows of the folder must have been the source's, so that they need not be loaded."""
        if self.wanted.table.source.version() is not None:
            return self._clock()  # it is cheap to find out whether they still are
        # Rows that another process has loaded a moment ago are as good as new ones.
        return self._clock() - (_NEW_S if self.schedule.refresh_s is None else self.schedule.refresh_s)

    def _load(self, newer_than: float) -> None:
        pointer, table = load(self.wanted, newer_than=newer_than)
        self._now = table, pointer.checked_at
        self._error = None

    def _refresh(self) -> None:
        every_s = self.schedule.refresh_s
        if every_s is None:
            return
        while True:
            assert self._now is not None
            left = every_s - (self._clock() - self._now[1]) if self._error is None else every_s
            if self._stopped.wait(min(max(0.05, left), threading.TIMEOUT_MAX)) or self._is_dropped():
                return
            try:
                # Another process of this machine can have loaded it since.
                self._load(self._now[1])
                telemetry.record("table_refreshes", (), 1)
            except Exception as error:  # noqa: BLE001  # the thread must go on, whatever a driver raises
                telemetry.record("table_refresh_failures", (), 1)
                if self._error is None or str(self._error) != str(error):  # once for each reason
                    _LOGGER.warning("%s cannot be loaded again, its last version stays: %s", self.wanted.title, error)
                self._error = error

    def _watch(self) -> None:
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
        # Called by the garbage collector, perhaps within a block of the lock: it must not wait for it.
        self.idle_since = time.monotonic()
        self.users.discard(user)

    def is_idle(self) -> bool:
        return not self.users and time.monotonic() - self.idle_since > _IDLE_S

    def stop(self) -> None:
        self._stopped.set()
        if self._live is not None:
            self._live.stop()
        if self._held is not None:
            self._held.release()


def acquire(wanted: Wanted, schedule: Schedule) -> Lease:
    """Returns a table, for as long as the lease lives. It is loaded when it is needed first."""
    key = (wanted.identity(), wanted.table.cache_dir, wanted.table.shared_dir, schedule)
    with _lock:
        for each in [each for each in _tables.values() if each.is_idle()]:
            _drop(each)
        shared = _tables.get(key)
        if shared is None:
            shared = _tables[key] = _Shared(wanted, schedule)
        return Lease(shared)


def close_all() -> None:
    """Drops all tables of this process, and ends their threads."""
    with _lock:
        for each in list(_tables.values()):
            _drop(each)


def _drop(shared: _Shared) -> None:
    """Removes a table. The lock is held."""
    shared.stop()
    for key in [key for key, each in _tables.items() if each is shared]:
        del _tables[key]


def _forget_after_fork() -> None:
    # The parent's threads are not here, and its lock can be held.
    global _lock
    _lock = threading.Lock()
    _tables.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
