"""Timers of a bundle: what has been set and not yet fired, in the order in which they fire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apache_beam.coders.coder_impl import create_OutputStream

from rmqio.runners.spark.beam_private import data_plane

Family = tuple[str, str]  # transform id, timer family id
Name = tuple[Family, Any, Any, str]  # and key, window, dynamic tag


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
        self._read: dict[Family, int] = {}
        self._coders: dict[Family, Any] = {}
        self._set: dict[Name, Any] = {}

    def stream(self, family: Family, coder: Any) -> data_plane.ClosableOutputStream:
        """Where the bundle writes the timers of a family; `coder` reads them."""
        stream = self._streams[family] = data_plane.ClosableOutputStream()
        self._read[family] = 0
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
        first: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        for name, timer in self._set.items():
            order = (not self._event_time[name[0]], timer.fire_timestamp)
            owner = _owner(name)
            if owner not in first or order < first[owner][0]:
                first[owner] = (order, name)
        streams: dict[Family, Any] = {}
        for _, name in sorted(first.values(), key=lambda each: each[0]):
            family = name[0]
            out = streams.setdefault(family, create_OutputStream())
            timer = self._set.pop(name)
            if self._is_behind(family, timer):
                self._expired.add(name)
            self._coders[family].encode_to_stream(timer, out, True)
        for family, out in streams.items():
            yield family, out.get()

    def _collect(self) -> None:
        for family, stream in self._streams.items():
            if stream.size() == self._read[family]:
                continue
            data = stream.get()[self._read[family] :]
            self._read[family] += len(data)
            for timer in self._coders[family].decode_all(data):
                window = timer.windows[0]
                name = (family, _hashable(timer.user_key), window, timer.dynamic_timer_tag)
                self._set.pop(name, None)
                if timer.clear_bit:
                    continue
                if self._is_behind(family, timer) and name in self._expired:
                    continue
                self._set[name] = timer

    def _is_behind(self, family: Family, timer: Any) -> bool:
        return self._event_time[family] and bool(timer.fire_timestamp > timer.windows[0].max_timestamp())


def _owner(name: Name) -> tuple[Any, ...]:
    """Transform, key and window of a timer: what it shares its state with."""
    (transform_id, _), key, window, _ = name
    return transform_id, key, window


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
