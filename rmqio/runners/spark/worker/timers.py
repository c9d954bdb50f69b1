"""Keeps the timers of a bundle that are set and have not fired yet, in the order in which they fire."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.timestamp import Timestamp

from rmqio.runners.spark.beam.private import ClosableOutputStream, create_OutputStream, taken
from rmqio.runners.spark.beam.serving import Family

if TYPE_CHECKING:
    from apache_beam.transforms.userstate import Timer

    from rmqio.runners.spark.beam.private import CoderImpl

Name = tuple[Family, Hashable, BoundedWindow, str]  # family, key, window, dynamic tag
Owner = tuple[str, Hashable, BoundedWindow]  # transform id, key, window: timers with the same owner share state
Order = tuple[bool, Timestamp]  # whether in processing time, and when the timer fires


class Timers:
    """Collects timers from the streams to which a bundle writes them, and returns those that are due.

    When all elements of a key have arrived, time advances to its end. Event-time timers fire in timestamp order, then
    processing-time timers fire without waiting, as in Beam's other batch runners. Timers that a callback sets join the
    queue. Only one timer of a key and window fires at a time, so that its callback can still clear or move a later one.

    An event-time timer may be set after the end of its window (Beam's own transforms set it at the end, and users add
    the allowed lateness). It fires. If it then sets itself again, it does not fire again, because it would never stop.
    """

    def __init__(self, event_time: Mapping[Family, bool]) -> None:
        """Args: whether each family is in event time."""
        self._event_time = event_time
        self._expired: set[Name] = set()  # timers that have fired after the end of their window
        self._streams: dict[Family, ClosableOutputStream] = {}
        self._coders: dict[Family, CoderImpl] = {}
        self._serials = itertools.count()
        self._set: dict[Name, tuple[int, Timer]] = {}  # serial number and timer
        # By owner, with the first timer to fire on top. A timer that was cleared or moved stays until it comes up: its
        # serial number is then no longer the one in `_set`.
        self._queues: dict[Owner, list[tuple[Order, int, Name]]] = {}

    def stream(self, family: Family, coder: CoderImpl) -> ClosableOutputStream:
        """Returns a stream to which the bundle writes the timers of a family. `coder` decodes them."""
        stream = self._streams[family] = ClosableOutputStream()
        self._coders[family] = coder
        return stream

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Yields encoded timers that fire now, until none is left. Timers that are set in between are included."""
        while True:
            self._collect()
            if not self._set:
                return
            yield from self._next()

    def _next(self) -> Iterator[tuple[Family, bytes]]:
        first = [found for owner in list(self._queues) if (found := self._first(owner)) is not None]
        streams: dict[Family, create_OutputStream] = {}
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
        """Removes the timer that fires first from an owner's queue, and returns it."""
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

    def _is_behind(self, family: Family, timer: Timer) -> bool:
        return self._event_time[family] and bool(timer.fire_timestamp > timer.windows[0].max_timestamp())


def _owner(name: Name) -> Owner:
    (transform_id, _), key, window, _ = name
    return transform_id, key, window


def _hashable(key: object) -> Hashable:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
