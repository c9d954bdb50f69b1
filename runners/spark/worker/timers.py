"""Timers of a bundle: what has been set and not yet fired, in the order in which they fire."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from rmqio.runners.spark.beam.private import create_OutputStream, data_plane, taken

Family = tuple[str, str]  # transform id, timer family id
Name = tuple[Family, Any, Any, str]  # and key, window, dynamic tag
Owner = tuple[str, Any, Any]  # transform id, key, window: what a timer shares its state with
Order = tuple[bool, Any]  # in processing time, when


class DueTimers(Protocol):
    """Where a bundle writes its timers, and has those from that are due: `Timers`, or what a stream keeps by key."""

    def stream(self, family: Family, coder: Any) -> data_plane.ClosableOutputStream:
        """Where the bundle writes the timers of a family; `coder` reads them."""
        ...

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Encoded timers that fire now, until none is left; what they set is taken in between."""
        ...


class Timers:
    """Collects timers from the streams that a bundle writes them to, and hands out those that are due.

    When a key's elements are all in, time goes to its end: event-time timers fire in the order of their time, then
    processing-time timers, as Beam's other batch runners do it, without waiting. Timers that a callback sets join the
    queue. Of a key one timer fires at a time, so that a callback can still clear or move a later one.

    An event-time timer may be set behind the end of its window (Beam's own transforms set it at the end, users add the
    lateness). It fires; but one that sets itself anew from there does not fire again, or it would never stop.
    """

    def __init__(self, event_time: Mapping[Family, bool]) -> None:
        """Args: whether a family is in event time."""
        self._event_time = event_time
        self._expired: set[Name] = set()  # timers that fired behind their window's end
        self._streams: dict[Family, data_plane.ClosableOutputStream] = {}
        self._coders: dict[Family, Any] = {}
        self._serials = itertools.count()
        self._set: dict[Name, tuple[int, Any]] = {}  # serial number and timer
        # By owner, the first to fire on top. What was cleared or moved stays until it comes up: its serial number is no
        # longer that of `_set`.
        self._queues: dict[Owner, list[tuple[Order, int, Name]]] = {}

    def stream(self, family: Family, coder: Any) -> data_plane.ClosableOutputStream:
        """Where the bundle writes the timers of a family; `coder` reads them."""
        stream = self._streams[family] = data_plane.ClosableOutputStream()
        self._coders[family] = coder
        return stream

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Encoded timers that fire now, until none is left; what they set is taken in between."""
        while True:
            self._collect()
            if not self._set:
                return
            yield from self._next()

    def _next(self) -> Iterator[tuple[Family, bytes]]:
        first = [found for owner in list(self._queues) if (found := self._first(owner)) is not None]
        streams: dict[Family, Any] = {}
        for _, _, name in sorted(first, key=lambda each: each[0]):
            family = name[0]
            out = streams.setdefault(family, create_OutputStream())
            _, timer = self._set.pop(name)
            if self._is_behind(family, timer):
                self._expired.add(name)
            self._coders[family].encode_to_stream(timer, out, True)
        for family, out in streams.items():
            yield family, out.get()

    def _first(self, owner: Owner) -> tuple[Order, int, Name] | None:
        """Takes the timer out of an owner's queue that fires first."""
        queue = self._queues[owner]
        while queue:
            first = heapq.heappop(queue)
            _, serial, name = first
            if name in self._set and self._set[name][0] == serial:
                return first
        del self._queues[owner]
        return None

    def _collect(self) -> None:
        for family, stream in self._streams.items():
            if not stream.size():
                continue
            data = taken(stream)
            for timer in self._coders[family].decode_all(data):
                name = (family, _hashable(timer.user_key), timer.windows[0], timer.dynamic_timer_tag)
                self._set.pop(name, None)
                if timer.clear_bit or (self._is_behind(family, timer) and name in self._expired):
                    continue
                serial = next(self._serials)
                self._set[name] = (serial, timer)
                order = (not self._event_time[family], timer.fire_timestamp)
                heapq.heappush(self._queues.setdefault(_owner(name), []), (order, serial, name))

    def _is_behind(self, family: Family, timer: Any) -> bool:
        return self._event_time[family] and bool(timer.fire_timestamp > timer.windows[0].max_timestamp())


def _owner(name: Name) -> Owner:
    (transform_id, _), key, window, _ = name
    return transform_id, key, window


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
