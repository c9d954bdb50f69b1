"""`Audit`: counts what goes by between two transforms, so that `rmqio audit` can say where messages were lost."""

from __future__ import annotations

import functools
import hashlib
import json
import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.coders import TupleCoder, VarIntCoder
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, WindowFn
from apache_beam.typehints import Tuple
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.audit.identity import hash_of
from rmqio.audit.sketch import (
    BLOCK_BITS,
    BUCKET_BITS,
    Hop,
    Key,
    Sketch,
    Total,
    encode,
    fold,
    mixed,
    summed,
)
from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message, Record
from rmqio.options import WriteOptions
from rmqio.security import Security
from rmqio.transforms import WriteToRocketMQ
from rmqio.transforms.parts import is_in_process, observe_process

# The DoFns of `Audit`: one counts what goes by in a bundle, one keeps the totals.

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


_PAIR: Final = Tuple[str, Tuple[int, int, int, int, int]]


class Audit(beam.PTransform):
    """Passes elements on, and counts them in an audit topic by queue, offsets and window of event time.

        records = pipeline | ReadFromRocketMQ("orders", ..., batches=True) | Audit("read", topic="orders-audit")
        parsed = records | MapRecords(parse) | Audit("parsed", topic="orders-audit")

    A sketch has no ids, only a count and a sum of hashes: 0.3 kB for up to 4,096 messages.

    Args:
      hop: the name of this point, unique in the pipeline.
      topic: the audit topic, which must exist. All hops of a pipeline share one.
      id_of: a callable from an element, or a value of a batch, to its id as text, the one that `rmqio audit --by`
        names. None: elements are `Record`s or `Batch`es, which know their places.
      window_s: length of the windows of event time.
      run: names the run. None: a new one, or of a stream the folder of `--checkpoint_dir`, because one that is started
        again with it continues its totals. Flink from a savepoint: give the same name again. A stream that begins anew
        needs another folder, or another name: its totals replace those of the same name. On the DirectRunner, which
        keeps no totals, each start of a stream is a run of its own: a name gets a suffix.
      name_server, security, options, client_factory: for the audit topic, as in `WriteToRocketMQ`.

    Returns: the elements, unchanged. The order is that of the input, as are windows, timestamps and type.

    Delivery: an element counts as often as it went through in what the runner has committed. A bundle's sketch is
    committed with the bundle, and added to a total: in the runner's state, or in a batch job by a combine. The topic's
    last message of a key is its total, whatever an attempt that failed has written before.

    Raises `LocalError` when it is built or applied; while it runs, for an element without a place if `id_of` is None.
    """

    def __init__(
        self,
        hop: str,
        *,
        topic: str,
        id_of: Callable[[Any], str] | None = None,
        window_s: int = 60,
        run: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        options: WriteOptions | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        if not isinstance(hop, str) or not hop:
            raise LocalError(f"hop is {hop!r}; it must be text that names this point of the pipeline")
        super().__init__(f"Audit {hop}")
        if id_of is not None and not callable(id_of):
            raise LocalError(f"id_of is {id_of!r}; it must be a callable of an element")
        if not isinstance(window_s, int) or isinstance(window_s, bool) or window_s < 1:
            raise LocalError(f"window_s is {window_s!r}; it must be a whole number of at least 1")
        self.hop, self._topic, self._id_of, self._window_ms, self._run = hop, topic, id_of, window_s * 1000, run
        self._write = WriteToRocketMQ(
            topic,
            name_server=name_server,
            security=security,
            options=options,
            client_factory=client_factory,
            id_fn=id_of_message,
            with_sent=False,
        )
        self.place = Hop(hop, 0, ())
        """Its place in the pipeline, known once it is applied."""

    def expand(self, elements: Any) -> Any:
        element_type = elements.element_type
        if self._id_of is None:
            self._require_places(element_type)
        self.place = self._placed(elements)
        windowing = elements.windowing.windowfn
        counting = beam.ParDo(CountFn(self.hop, self._run_of(elements), self._id_of, self._window_ms, windowing))
        outputs = elements | "Count" >> counting.with_outputs(SKETCHES_TAG, main="passed")
        passed, sketches = outputs["passed"], outputs[SKETCHES_TAG]
        passed.element_type, sketches.element_type = element_type, _PAIR
        pairs, is_stream = sketches, self._is_stream(elements)
        if is_stream or not elements.windowing.is_default():
            pairs = sketches | "All time" >> beam.WindowInto(GlobalWindows()).with_output_types(_PAIR)
        if is_stream:
            messages = pairs | "Total" >> beam.ParDo(TotalsFn(self.place)).with_output_types(Message)
        else:
            # Without state, each value of which Beam weighs for its cache: some milliseconds on the DirectRunner.
            messages = (
                pairs | "Total" >> beam.CombinePerKey(AddTotalsFn()) | "Message" >> beam.ParDo(EncodeFn(self.place))
            )
        _ = messages | "Write" >> self._write
        return passed

    def _is_stream(self, elements: Any) -> bool:
        return not elements.is_bounded or elements.pipeline.options.view_as(StandardOptions).streaming

    def _require_places(self, element_type: Any) -> None:
        """Refuse a type that certainly has no place. Elements of other types are examined one by one."""
        if not isinstance(element_type, type) or issubclass(element_type, (Record, list)) or element_type is object:
            return
        raise LocalError(
            f"Audit({self.hop!r}) cannot tell elements of type {element_type.__name__} apart, because they have no "
            "place in a topic: give id_of=, a function that returns the id of an element as text"
        )

    def _run_of(self, elements: Any) -> str:
        unique, is_stream = uuid.uuid4().hex[:16], self._is_stream(elements)
        if is_stream and is_in_process(elements.pipeline):
            # The runner keeps no state: each start begins its totals anew, but goes on from the group's offsets. Under
            # one name, the totals of the second start would replace those of the first.
            return f"{self._run}-{unique}" if self._run is not None else unique
        if self._run is not None:
            return self._run
        # A batch job begins its totals anew, whatever the folder: under its name, they would replace the last run's.
        folder = elements.pipeline.options.get_all_options().get("checkpoint_dir") if is_stream else None
        return str(folder) if folder else unique

    def _placed(self, elements: Any) -> Hop:
        """Find the hops before this one. Raises `LocalError` for a name that is there already."""
        others = [each for each in _audits_of(elements.pipeline) if each is not self]
        if any(each.hop == self.hop for each in others):
            raise LocalError(f"two Audits are named {self.hop!r}; give each its own name")
        direct = _directly_before(elements)
        depth = 1 + max((each.place.depth for each in direct), default=-1)
        return Hop(self.hop, depth, tuple(sorted({each.hop for each in direct})))

    def display_data(self) -> dict[str, Any]:
        shown = {"hop": self.hop, "topic": self._topic, "id_of": getattr(self._id_of, "__qualname__", None)}
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}


def _audits_of(pipeline: Any) -> Iterator[Audit]:
    """Yield the `Audit`s that a pipeline has so far."""
    left = [pipeline.transforms_stack[0]]
    while left:
        applied = left.pop()
        if isinstance(applied.transform, Audit):
            yield applied.transform
        left += applied.parts


def _directly_before(collection: Any) -> list[Audit]:
    """Return those that elements come from with no other between them."""
    found: dict[str, Audit] = {}
    seen: set[Any] = set()
    left = [collection]
    while left:
        current = left.pop()
        producer = getattr(current, "producer", None)
        if producer is None or current in seen:
            continue
        seen.add(current)
        audit = _audit_of(producer)
        if audit is not None:
            found[audit.hop] = audit
        else:
            left += producer.inputs
    return list(found.values())


def _audit_of(applied: Any) -> Audit | None:
    """Return the `Audit` that a transform is a part of."""
    while applied is not None:
        if isinstance(applied.transform, Audit):
            return applied.transform
        applied = applied.parent
    return None
