"""The state of a bucket in a micro-batch: entries of bytes, and records by key with an index by time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from rmqio.runners.spark.worker.shuffling import pack, unpack

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState


# The state of one bucket in a micro-batch: entries of bytes, each read and written at most once.


class Entries(Protocol):
    """Stores entries. `SparkEntries` stores them in Spark's state store."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def remove(self, key: bytes) -> None: ...


class SparkEntries:
    """Entries in a map state of transformWithState, for the current bucket. An access takes about 0.05 ms."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: bytes) -> bytes | None:
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: bytes, value: bytes) -> None:
        self._state.updateValue((key,), (value,))

    def remove(self, key: bytes) -> None:
        self._state.removeKey((key,))


class Store:
    """Reads entries on first use, collects changes, and writes them in `flush`."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._known: dict[bytes, bytes | None] = {}
        self._changed: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        if key not in self._known:
            self._known[key] = self._entries.get(key)
        return self._known[key]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Sets an entry. None removes it."""
        self._known[key] = value
        self._changed.add(key)

    def flush(self) -> None:
        """Writes all changes."""
        for key in sorted(self._changed):
            value = self._known[key]
            if value is None:
                self._entries.remove(key)
            else:
                self._entries.put(key, value)
        self._changed.clear()


_META: Final = struct.Struct(">cI")
_COUNTS: Final = struct.Struct("<IQ")  # doublings, keys
_PAGE: Final = struct.Struct(">cII")
_KEYS_A_PAGE: Final = 64

_SPAN: Final = struct.Struct(">cq")  # domain, span of time
_SEGMENTS: Final = struct.Struct("<II")  # the number of the first segment, and their count
_SEGMENT: Final = struct.Struct(">cIcqI")
_TIME: Final = struct.Struct("<q")
_SPAN_BITS: Final = 20  # times with the same upper bits share an entry: about a second

NEVER: Final = (1 << 63) - 1
EVENT: Final = b"e"
PROCESSING: Final = b"p"
HOLD: Final = b"h"


class Keys:
    """Records by key."""

    def __init__(self, store: Store, stage: int) -> None:
        self._store = store
        self._stage = stage
        self._meta = _META.pack(b"k", stage)
        found = store.get(self._meta)
        self._doublings, self._count = _COUNTS.unpack(found) if found else (0, 0)
        self._before = (self._doublings, self._count)
        self._pages: dict[int, dict[bytes, bytes]] = {}
        self._changed: set[int] = set()

    def get(self, key: bytes) -> bytes | None:
        return self._page(self._number(key)).get(key)

    def put(self, key: bytes, record: bytes | None) -> None:
        """Sets the record of a key. None removes the key."""
        number = self._number(key)
        page = self._page(number)
        self._count += (record is not None) - (key in page)
        if record is None:
            page.pop(key, None)
        else:
            page[key] = record
        self._changed.add(number)

    def flush(self) -> None:
        """Writes the changes to the bucket's store."""
        if self._count > _KEYS_A_PAGE << self._doublings:
            self._divide()
        for number in sorted(self._changed):
            page = self._pages[number]
            self._store.put(self._name(number), _packed(page) if page else None)
        self._changed.clear()
        if (self._doublings, self._count) != self._before:
            self._before = (self._doublings, self._count)
            self._store.put(self._meta, _COUNTS.pack(*self._before))

    def _divide(self) -> None:
        everything = [self._page(number) for number in range(1 << self._doublings)]
        self._doublings += 2
        self._pages = {number: {} for number in range(1 << self._doublings)}
        self._changed = set(self._pages)
        for page in everything:
            for key, record in page.items():
                self._pages[self._number(key)][key] = record

    def _number(self, key: bytes) -> int:
        # The lower bits have already selected the bucket
        mask: int = (1 << self._doublings) - 1
        return (zlib.crc32(key) * 0x9E3779B1 >> 7) & mask

    def _name(self, number: int) -> bytes:
        return _PAGE.pack(b"p", self._stage, number)

    def _page(self, number: int) -> dict[bytes, bytes]:
        page = self._pages.get(number)
        if page is None:
            found = self._store.get(self._name(number))
            page = self._pages[number] = {} if found is None else dict(zip(*unpack(found), strict=True))
        return page


class Times:
    """An index of keys by time: when each is due, in event time and by the clock, and where it holds the watermark.

    Notes are not removed early. When a note comes up, the key's record says whether it still counts.
    """

    def __init__(self, store: Store, stage: int) -> None:
        self._store = store
        self._stage = stage
        self._index = _META.pack(b"t", stage)
        self._spans: dict[tuple[bytes, int], list[int]] = {}
        self._notes: dict[tuple[bytes, int], list[tuple[bytes, int]]] = {}
        self._changed = False
        if found := store.get(self._index):
            for span, segments in zip(*unpack(found), strict=True):
                self._spans[_SPAN.unpack(span)] = list(_SEGMENTS.unpack(segments))

    def note(self, domain: bytes, micros: int, key: bytes) -> None:
        """Notes that the key is due when the domain's time reaches `micros`, or that it holds the watermark there."""
        span = domain, micros >> _SPAN_BITS
        self._notes.setdefault(span, []).append((key, micros))
        self._spans.setdefault(span, [0, 0])
        self._changed = True

    def due(self, domain: bytes, now: int) -> Iterator[tuple[bytes, int]]:
        """Removes the notes up to `now`, and yields the key and time of each."""
        last = now >> _SPAN_BITS
        for span in sorted(span for span in self._spans if span[0] == domain and span[1] <= last):
            for key, micros in self._taken(span):
                if micros <= now:
                    yield key, micros
                else:
                    self.note(domain, micros, key)

    def least_hold(self, watermark: int, counts: Callable[[bytes, int], bool]) -> int:
        """Returns the least time before the watermark at which a key holds it; NEVER if there is none.

        `counts`: returns whether a note still counts.
        """
        last = watermark >> _SPAN_BITS
        for span in sorted(span for span in self._spans if span[0] == HOLD and span[1] <= last):
            held = [note for note in self._taken(span) if counts(*note)]
            for key, micros in held:
                self.note(HOLD, micros, key)
            if held:
                return min(micros for _, micros in held)
        return NEVER

    def waits_for_the_clock(self) -> bool:
        """Returns whether there is any note in processing time."""
        return any(domain == PROCESSING for domain, _ in self._spans)

    def flush(self) -> None:
        """Writes the changes to the bucket's store."""
        for span, notes in self._notes.items():
            segments = self._spans[span]
            keys = pa.array([key for key, _ in notes], pa.binary())
            times = pa.array([_TIME.pack(micros) for _, micros in notes], pa.binary())
            self._store.put(self._name(span, segments[0] + segments[1]), pack(keys, times))
            segments[1] += 1
        self._notes.clear()
        if self._changed:
            spans = {_SPAN.pack(*span): _SEGMENTS.pack(*segments) for span, segments in self._spans.items()}
            self._store.put(self._index, _packed(spans) if spans else None)
            self._changed = False

    def _taken(self, span: tuple[bytes, int]) -> list[tuple[bytes, int]]:
        """Removes all notes of a span, and returns them."""
        first, count = self._spans.pop(span)
        notes = self._notes.pop(span, [])
        self._changed = True
        for number in range(first, first + count):
            name = self._name(span, number)
            for key, time in zip(*unpack(self._store.get(name) or _EMPTY), strict=True):
                notes.append((key, _TIME.unpack(time)[0]))
            self._store.put(name, None)
        return notes

    def _name(self, span: tuple[bytes, int], number: int) -> bytes:
        return _SEGMENT.pack(b"u", self._stage, span[0], span[1], number)


class Notes:
    """The times that are noted for a key. They are kept in its record, so that only changes are noted again."""

    LAYOUT: Final = struct.Struct("<qqq")
    __slots__ = ("_noted",)

    def __init__(self, head: bytes | None = None) -> None:
        noted = (NEVER,) * 3 if head is None else self.LAYOUT.unpack_from(head)
        self._noted = dict(zip((EVENT, PROCESSING, HOLD), noted, strict=True))

    def head(self) -> bytes:
        """Returns the bytes that precede the key's record."""
        return self.LAYOUT.pack(*self._noted.values())

    @property
    def hold(self) -> int:
        """The time at which the key holds the output watermark."""
        hold: int = self._noted[HOLD]
        return hold

    def came(self, domain: bytes, micros: int) -> None:
        """Called when a note was removed."""
        if self._noted[domain] == micros:
            self._noted[domain] = NEVER

    def update(self, times: Times, key: bytes, event: int, clock: int, hold: int) -> None:
        """Notes the key's earliest times and its hold if they have changed. NEVER means none."""
        for domain, micros in ((EVENT, event), (PROCESSING, clock)):
            if micros < self._noted[domain]:
                times.note(domain, micros, key)
                self._noted[domain] = micros
        if hold != self._noted[HOLD]:
            self._noted[HOLD] = hold
            if hold != NEVER:
                times.note(HOLD, hold, key)


def _packed(entries: dict[bytes, bytes]) -> bytes:
    return pack(_binary(entries), _binary(entries.values()))


def _binary(values: Iterable[bytes]) -> pa.Array:
    return pa.array(list(values), pa.binary())


_EMPTY: Final = pack(_binary(()), _binary(()))
