"""The DoFns of `Audit`: one counts what goes by in a bundle, one keeps the totals."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
import numpy as np
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.audit.identity import hash_of
from rmqio.audit.sketch import BLOCK_BITS, BUCKET_BITS, Hop, Key, Sketch, Total, encode, fold, mixed
from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.model import Message, Record
from rmqio.transforms.metrics import observe_process

SKETCHES_TAG: Final = "sketches"
_FOLD_AT: Final = 1 << 16
"""Elements that are kept until they are added up: half a megabyte."""
_NO_PLACE: Final = ("", "", -1, "")

Place = tuple[str, str, int, str]
"""Topic, broker, queue id, steps."""
_Row = tuple[int, int, int, int]
"""First and last offset (exclusive) or a hash and zero, the window, the time."""


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
        self._rows: dict[Place, list[_Row]] = {}
        self._waiting = 0
        self._totals: dict[tuple[Place, int, int], Total] = {}

    def process(self, element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Sequence[Any]:
        size, now_ms = self._window_ms, int(time.time() * 1000)
        window_ms = timestamp.micros // 1000 // size * size
        if self._id_of is not None:
            self._count_ids(element, window_ms, now_ms)
        elif type(element) is Record:
            offset = element[3]
            self._rows.setdefault((element[0], element[1], element[2], ""), []).append(
                (offset, offset + 1, window_ms, now_ms)
            )
            self._waiting += 1
        elif isinstance(element, Batch) and element.queue is not None:
            rows = self._rows.setdefault((*element.queue, element.steps), [])
            offsets = element.offsets
            if isinstance(offsets, range) and offsets.step == 1:
                if offsets:
                    rows.append((offsets.start, offsets.stop, window_ms, now_ms))
            else:
                rows += [(offset, offset + 1, window_ms, now_ms) for offset in offsets]
            self._waiting += len(element)
        else:
            raise self._without_place(element)
        if self._waiting >= _FOLD_AT:
            self._fold()
        return (element,)

    def finish_bundle(self) -> Iterator[Any]:
        self._fold()
        totals, self._totals = self._totals, {}
        for ((topic, broker, queue_id, steps), block, window_ms), total in totals.items():
            key = Key(self._run, self._hop, topic, broker, queue_id, block, window_ms, steps)
            at = Timestamp(micros=window_ms * 1000)
            windows = self._windowing.assign(WindowFn.AssignContext(at))
            pair = key.text(), _signed(total)
            yield beam.pvalue.TaggedOutput(SKETCHES_TAG, WindowedValue(pair, at, windows[:1]))

    def _count_ids(self, element: Any, window_ms: int, now_ms: int) -> None:
        assert self._id_of is not None
        values = element if isinstance(element, list) else (element,)
        rows = self._rows.setdefault(_NO_PLACE, [])
        for value in values:
            text = self._id_of(value)
            if not isinstance(text, str):
                raise LocalError(f"id_of of Audit({self._hop!r}) returned {type(text).__name__}; it must return text")
            rows.append((int.from_bytes(hash_of(text), "big"), 0, window_ms, now_ms))
        self._waiting += len(values)

    def _fold(self) -> None:
        """Add up what waits."""
        for place, rows in self._rows.items():
            if not rows:
                continue
            if place == _NO_PLACE:
                hashes = np.array([row[0] for row in rows], np.uint64)
                units = (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
                windows, times = np.array([row[2:] for row in rows], np.int64).T
            else:
                starts, stops, windows, times = np.array(rows, np.int64).T
                counts = stops - starts
                if int(counts.max()) > 1:
                    behind = np.repeat(starts - (np.cumsum(counts) - counts), counts)
                    offsets = behind + np.arange(len(behind))
                    windows, times = np.repeat(windows, counts), np.repeat(times, counts)
                else:
                    offsets = starts
                units, hashes = offsets >> BLOCK_BITS, mixed(offsets)
            for window_ms in np.unique(windows).tolist():
                is_there = windows == window_ms
                for unit, total in fold(units[is_there], hashes[is_there], times[is_there]):
                    key = place, unit, window_ms
                    self._totals[key] = self._totals.get(key, Total()).plus(total)
        self._rows, self._waiting = {}, 0

    def _without_place(self, element: Any) -> LocalError:
        kind = "a batch without places" if isinstance(element, Batch) else f"elements of type {type(element).__name__}"
        return LocalError(
            f"Audit({self._hop!r}) cannot tell {kind} apart: give id_of=, a function that returns the id of an element "
            "as text"
        )


def _signed(total: Total) -> tuple[int, ...]:
    """Beam's coder of integers knows 64 bits with a sign."""
    count, hash_sum, *times = total
    return (count, hash_sum - (1 << 64) if hash_sum >> 63 else hash_sum, *times)


class TotalsFn(beam.DoFn):
    """Keeps the total of each key in the runner's state, and emits it whenever it grows.

    The state is what the runner has committed. What a failed attempt has emitted is replaced, because the attempt that
    succeeds emits the total of the same key again, later.
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
