"""The DoFns of `Audit`: one counts what goes by in a bundle, one keeps the totals."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, WindowFn
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.audit.identity import hash_of
from rmqio.audit.sketch import BLOCK_BITS, BUCKET_BITS, Hop, Key, Sketch, Total, encode, fold, mixed, summed
from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.model import Message, Record
from rmqio.transforms.parts import observe_process

SKETCHES_TAG: Final = "sketches"
_FOLD_AT: Final = 1 << 16
"""Elements that are kept until they are added up: half a megabyte."""
_WINDOW_BITS: Final = 20
"""Bits for the number of a window among the windows of the rows that are added up at once."""
_MOST: Final = (1 << 63) - 1
_NO_PLACE: Final = ("", "", -1, "")

_Numbers = npt.NDArray[Any]
Place = tuple[str, str, int, str]
"""Topic, broker, queue id, steps."""


class _Waiting(NamedTuple):
    """Holds what went by at a place and is not added up yet, in flat arrays: tuples cost too much."""

    ranges: array[int]
    """Rows of first and last offset (exclusive) in a block, window, and time."""
    singles: array[int]
    """Offsets; without a place, the bytes of hashes, big-endian."""
    runs: array[int]
    """Rows of how many singles share a window and a time, the window, and the time."""

    def add_run(self, count: int, window_ms: int, now_ms: int) -> None:
        self.runs.extend((count, window_ms, now_ms))


class CountFn(beam.DoFn):
    """Passes elements on, and emits the sketch of a bundle when it ends: the runner commits it with the bundle.

    Args:
      hop: the name of the hop.
      run: the run of the pipeline.
      id_of: the identity of an element, or of a value of a batch, as text; None: their places.
      windowing: of the input; the sketches must have a window of it.
    """

    def __init__(
        self, hop: str, run: str, id_of: Callable[[Any], str] | None, window_ms: int, windowing: WindowFn
    ) -> None:
        self._hop, self._run, self._id_of, self._window_ms, self._windowing = hop, run, id_of, window_ms, windowing
        self._begin()

    def setup(self) -> None:
        observe_process()

    def start_bundle(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._places: dict[Place, _Waiting] = {}
        self._waiting = 0
        self._totals: dict[tuple[Place, int, int], Total] = {}

    def process(self, element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Sequence[Any]:
        size, now_ms = self._window_ms, int(time.time() * 1000)
        window_ms = timestamp.micros // 1000 // size * size
        if self._id_of is not None:
            self._count_ids(element, window_ms, now_ms)
        elif type(element) is Record:
            topic, broker, queue_id, offset = element[:4]
            self._at((topic, broker, queue_id, "")).ranges.extend((offset, offset + 1, window_ms, now_ms))
            self._waiting += 1
        elif isinstance(element, Batch) and element.queue is not None:
            waiting, offsets = self._at((*element.queue, element.steps)), element.offsets
            if not isinstance(offsets, range) or offsets.step != 1:
                waiting.singles.extend(offsets)
                waiting.add_run(len(offsets), window_ms, now_ms)
            elif offsets:
                start, stop = offsets.start, offsets.stop
                while (border := (start >> BLOCK_BITS) + 1 << BLOCK_BITS) < stop:
                    waiting.ranges.extend((start, border, window_ms, now_ms))
                    start = border
                waiting.ranges.extend((start, stop, window_ms, now_ms))
            self._waiting += len(element)
        else:
            raise self._without_place(element)
        if self._waiting >= _FOLD_AT:
            self._fold()
        return (element,)

    def _at(self, place: Place) -> _Waiting:
        waiting = self._places.get(place)
        if waiting is None:
            waiting = self._places[place] = _Waiting(array("q"), array("q"), array("q"))
        return waiting

    def finish_bundle(self) -> Iterator[Any]:
        self._fold()
        totals, self._totals = self._totals, {}
        # Beam makes a global window anew each time, from text: most of what a sketch costs here.
        everything = (GlobalWindow(),) if type(self._windowing) is GlobalWindows else None
        for ((topic, broker, queue_id, steps), block, window_ms), total in totals.items():
            key = Key(self._run, self._hop, topic, broker, queue_id, block, window_ms, steps)
            at = max(Timestamp(micros=window_ms * 1000), MIN_TIMESTAMP)
            windows = everything or self._windowing.assign(WindowFn.AssignContext(at))
            pair = key.text(), _signed(total)
            yield beam.pvalue.TaggedOutput(SKETCHES_TAG, WindowedValue(pair, at, windows[:1]))

    def _count_ids(self, element: Any, window_ms: int, now_ms: int) -> None:
        assert self._id_of is not None
        values = element if isinstance(element, list) else (element,)
        texts = [self._id_of(value) for value in values]
        for text in texts:
            if not isinstance(text, str):
                raise LocalError(f"id_of of Audit({self._hop!r}) returned {type(text).__name__}; it must return text")
        waiting = self._at(_NO_PLACE)
        waiting.singles.frombytes(b"".join(map(hash_of, texts)))
        waiting.add_run(len(texts), window_ms, now_ms)
        self._waiting += len(values)

    def _fold(self) -> None:
        """Add up what waits."""
        for place, waiting in self._places.items():
            if waiting.ranges:
                starts, stops, windows, times = np.array(waiting.ranges, np.int64).reshape(-1, 4).T
                self._add(place, starts >> BLOCK_BITS, summed(starts, stops), windows, times, stops - starts)
            if waiting.singles:
                repeats, *columns = np.array(waiting.runs, np.int64).reshape(-1, 3).T
                windows, times = (np.repeat(column, repeats) for column in columns)
                if place == _NO_PLACE:
                    hashes = np.frombuffer(waiting.singles, ">u8").astype(np.uint64)
                    units = (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
                else:
                    offsets = np.array(waiting.singles, np.int64)
                    units, hashes = offsets >> BLOCK_BITS, mixed(offsets)
                self._add(place, units, hashes, windows, times)
        self._places, self._waiting = {}, 0

    def _add(
        self,
        place: Place,
        units: _Numbers,
        hashes: _Numbers,
        windows: _Numbers,
        times: _Numbers,
        counts: _Numbers | None = None,
    ) -> None:
        found, numbers = windows[:1], np.zeros(1, np.int64)
        if (windows != windows[0]).any():
            found, numbers = np.unique(windows, return_inverse=True)
        for code, total in fold(units << _WINDOW_BITS | numbers, hashes, times, counts):
            key = place, code >> _WINDOW_BITS, int(found[code & (1 << _WINDOW_BITS) - 1])
            self._totals[key] = self._totals.get(key, Total()).plus(total)

    def _without_place(self, element: Any) -> LocalError:
        kind = "a batch without places" if isinstance(element, Batch) else f"elements of type {type(element).__name__}"
        return LocalError(
            f"Audit({self._hop!r}) cannot tell {kind} apart: give id_of=, a function that returns the id of an element "
            "as text"
        )


def _signed(total: Total) -> tuple[int, ...]:
    """Beam's coder of integers knows 64 bits with a sign.

    The sum of the times stops at the greatest number, after 5 million elements of one key. Only parts of hashes have so
    many, and their mean time is not used.
    """
    count, hash_sum, sum_ms, first_ms, last_ms = total
    return count, hash_sum - (1 << 64) if hash_sum >> 63 else hash_sum, min(sum_ms, _MOST), first_ms, last_ms


class TotalsFn(beam.DoFn):
    """Keeps the total of each key in the runner's state, and emits it whenever it grows.

    The state is what the runner has committed. A total that a failed attempt has emitted is replaced, because the
    attempt that succeeds emits the total of the same key again, later.
    """

    TOTAL = ReadModifyWriteStateSpec("total", TupleCoder([VarIntCoder()] * len(Total._fields)))

    def __init__(self, hop: Hop) -> None:
        self._hop = hop

    def setup(self) -> None:
        observe_process()

    def process(self, element: tuple[str, tuple[int, ...]], total: Any = beam.DoFn.StateParam(TOTAL)) -> list[Message]:
        text, found = element
        before = total.read()
        new = _unsigned(found) if before is None else _unsigned(before).plus(_unsigned(found))
        total.write(_signed(new))
        return [message_of(text, self._hop, new)]


class AddTotalsFn(beam.CombineFn):
    """Adds the sketches of a key in a batch job. Accumulators are totals as Beam's coder of integers takes them."""

    def create_accumulator(self) -> tuple[int, ...]:
        return Total()

    def add_input(self, accumulator: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, ...]:
        return _signed(_unsigned(accumulator).plus(_unsigned(found)))

    def merge_accumulators(self, accumulators: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        return functools.reduce(self.add_input, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: tuple[int, ...]) -> tuple[int, ...]:
        return accumulator


class EncodeFn(beam.DoFn):
    """Makes the message of a combined sketch."""

    def __init__(self, hop: Hop) -> None:
        self._hop = hop

    def process(self, element: tuple[str, tuple[int, ...]]) -> Iterator[Message]:
        text, found = element
        yield message_of(text, self._hop, _unsigned(found))


def _unsigned(found: tuple[int, ...]) -> Total:
    count, hash_sum, *times = found
    return Total(count, hash_sum & ((1 << 64) - 1), *times)


def message_of(text: str, hop: Hop, total: Total) -> Message:
    """Return the message of a sketch. Those of one key go to one queue, where the last one counts."""
    name = hash_of(text).hex().upper()
    body = encode(Sketch(Key(*json.loads(text)), hop, total))
    return Message(body, keys=(name,), tags="sketch", sharding_key=name)


def id_of_message(message: Message) -> str:
    """Return the id of a sketch's message: the same for the same content."""
    return hashlib.blake2b(message.body, digest_size=16).hexdigest().upper()
