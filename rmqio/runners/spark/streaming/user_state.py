"""What a bucket keeps for a DoFn of a streaming pipeline: state and timers by key, residuals of a splittable one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

from rmqio.runners.spark.beam.private import (
    ClosableOutputStream,
    StateServicer,
    beam_fn_api_pb2,
    beam_runner_api_pb2,
    create_OutputStream,
    encoded_key,
    taken,
)
from rmqio.runners.spark.streaming.state import EVENT, NEVER, PROCESSING, Keys, Notes, Store, Times
from rmqio.runners.spark.worker.shuffling import pack, unpack
from rmqio.runners.spark.worker.task import delay_of

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow

    from rmqio.runners.spark.beam.private import CoderImpl, beam_fn_api_pb2


# Keeps the residuals of splittable DoFns in a streaming pipeline in a bucket until a later micro-batch, when due.

_NAME: Final = struct.Struct(">cI")
_RESIDUAL_HEAD: Final = struct.Struct("<qq")  # when it is due, and the time at which it holds the output watermark


class Residuals:
    """The residuals of one stage in one bucket. One entry holds all: a splittable DoFn without end has few elements."""

    def __init__(self, store: Store, stage: int) -> None:
        self._store = store
        self._name = _NAME.pack(b"r", stage)
        found = store.get(self._name)
        heads, elements = unpack(found) if found else ([], [])
        self._kept = [(*_RESIDUAL_HEAD.unpack(head), element) for head, element in zip(heads, elements, strict=True)]

    def due(self, clock: int) -> list[bytes]:
        """Removes the elements that are due, and returns them."""
        due = [element for time, _, element in self._kept if time <= clock]
        self._kept = [each for each in self._kept if each[0] > clock]
        return due

    def add(self, deferred: Iterable[beam_fn_api_pb2.DelayedBundleApplication], clock: int, lowest: int) -> None:
        """Adds residuals. One that reports no watermark holds the output watermark at `lowest`."""
        for each in deferred:
            holds = [_micros(time) for time in each.application.output_watermarks.values()]
            time = clock + int(delay_of(each) * 1e6)
            self._kept.append((time, min(holds, default=lowest), each.application.element))

    def hold(self) -> int:
        """Returns how far the output watermark may advance."""
        return min((hold for _, hold, _ in self._kept), default=NEVER)

    @property
    def is_empty(self) -> bool:
        return not self._kept

    def flush(self) -> None:
        """Writes all residuals to the bucket's store."""
        if not self._kept:
            self._store.put(self._name, None)
            return
        heads = pa.array([_RESIDUAL_HEAD.pack(time, hold) for time, hold, _ in self._kept], pa.binary())
        self._store.put(self._name, pack(heads, pa.array([element for _, _, element in self._kept], pa.binary())))


def _micros(time: Any) -> int:
    """Protobuf's own conversion refuses times before the year 1, and a watermark that has not moved is before it."""
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1000


Family = tuple[str, str]  # transform id, state or timer family id
Name = tuple[Family, bytes, bytes, bytes]  # of a timer: family, encoded key, encoded window, tag
Timer = tuple[int, int, bytes]  # when it fires, the time at which it holds the output watermark, the encoded timer
_HEAD: Final = struct.Struct("<cII")  # kind, the state's or family's number, length of the window
_FIRES: Final = struct.Struct("<qq")  # when the timer fires, and the time at which it holds the output watermark
_STATE: Final = b"s"
_ORDERED: Final = b"o"
_TIMER: Final = b"t"
MAX: Final = int(MAX_TIMESTAMP.micros)
_MIN: Final = int(MIN_TIMESTAMP.micros)
_WHOLE_RANGE: Final = (-(1 << 63), (1 << 63) - 1)


def family_number(transform_id: str, name: str) -> int:
    """Returns the number that stands for the names in a record."""
    return zlib.crc32(f"{transform_id}\0{name}".encode())


class KeyedState:
    """The state of a stage in one bucket, for one micro-batch. Serves the bundle, and then writes to the store."""

    def __init__(
        self,
        store: Store,
        stage: int,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        windowing: Windowing,
        timer_coders: Mapping[Family, CoderImpl],
    ) -> None:
        self._keys = Keys(store, stage)
        self._times = Times(store, stage)
        self._lateness = int(windowing.allowed_lateness.micros)
        self._window_coder = windowing.windowfn.get_window_coder()
        self._ends: dict[bytes, int] = {}
        self._names, self._event_time = _families(descriptor)
        self._timer_coders = timer_coders
        self._least = NEVER
        self._notes: dict[bytes, Notes] = {}  # of the loaded keys
        # By key and cell: the state keys that were used
        self._cells: dict[bytes, dict[bytes, beam_fn_api_pb2.StateKey]] = {}
        self._servicer = StateServicer()
        self.timers = KeyTimers(self)

    # ---- state, as the bundle requests it ------------------------------------------------------------------------

    def get_raw(self, state_key: beam_fn_api_pb2.StateKey) -> tuple[bytes, object]:
        self._enter(state_key)
        found: tuple[bytes, object] = self._servicer.get_raw(state_key)
        return found

    def append_raw(self, state_key: beam_fn_api_pb2.StateKey, data: bytes) -> object:
        self._enter(state_key)
        return self._servicer.append_raw(state_key, data)

    def clear(self, state_key: beam_fn_api_pb2.StateKey) -> object:
        self._enter(state_key)
        return self._servicer.clear(state_key)

    def _enter(self, state_key: beam_fn_api_pb2.StateKey) -> None:
        kind = state_key.WhichOneof("type")
        if kind not in ("bag_user_state", "ordered_list_user_state"):
            raise NotImplementedError(
                f"SparkRunner does not support state of the kind {kind} in streaming pipelines. Use another kind of "
                "state, such as a bag or an ordered list"
            )
        of = getattr(state_key, kind)
        self.load(of.key)
        number = family_number(of.transform_id, of.user_state_id)
        head = _HEAD.pack(_STATE if kind == "bag_user_state" else _ORDERED, number, len(of.window))
        cells = self._cells[of.key]
        cell = head + of.window
        if cell not in cells:
            cells[cell] = self._state_key(of.key, cell)

    def _state_key(self, key: bytes, cell: bytes) -> beam_fn_api_pb2.StateKey:
        """Returns the state key of a cell. For an ordered list, it covers the whole range."""
        kind, number, length = _HEAD.unpack_from(cell)
        transform_id, name = self._names[number]
        window = cell[_HEAD.size : _HEAD.size + length]
        names = {"transform_id": transform_id, "user_state_id": name, "window": window, "key": key}
        if kind == _STATE:
            return beam_fn_api_pb2.StateKey(bag_user_state=beam_fn_api_pb2.StateKey.BagUserState(**names))
        ordered = beam_fn_api_pb2.StateKey.OrderedListUserState(**names)
        ordered.range.start, ordered.range.end = _WHOLE_RANGE
        return beam_fn_api_pb2.StateKey(ordered_list_user_state=ordered)

    def load(self, key: bytes) -> None:
        """Loads the key's record from the store, once."""
        if key in self._notes:
            return
        record = self._keys.get(key)
        self._notes[key] = Notes(record)
        cells = self._cells[key] = {}
        if record is None:
            return
        for cell, value in zip(*unpack(record[Notes.LAYOUT.size :]), strict=True):
            if cell[:1] == _TIMER:
                _, number, length = _HEAD.unpack_from(cell)
                at = _HEAD.size + length
                window, tag = cell[_HEAD.size : at], cell[at:]
                fires, holds = _FIRES.unpack_from(value)
                self.timers.put((self._names[number], key, window, tag), fires, holds, value[_FIRES.size :])
                continue
            state_key = cells[cell] = self._state_key(key, cell)
            if cell[:1] == _ORDERED:
                state_key = beam_fn_api_pb2.StateKey.FromString(state_key.SerializeToString())
                state_key.ordered_list_user_state.ClearField("range")
            self._servicer.append_raw(state_key, value)

    # ---- time ----------------------------------------------------------------------------------------------------

    def is_over(self, window: bytes, watermark: int) -> bool:
        """Returns whether an element for the window would be too late now."""
        return self._last(window) < watermark

    def _last(self, window: bytes) -> int:
        """Returns the last microsecond at which a window accepts elements: before the end of time, for any lateness."""
        return min(self.end(window) + self._lateness, MAX - 1)

    def _last_of(self, timers: Mapping[Name, Timer]) -> Callable[[bytes], int]:
        """Returns a function that gives the last microsecond until which a window of a key is kept.

        It is not before the last event-time timer of the window, so that all of them fire. `timers`: the key's timers.
        """
        latest: dict[bytes, int] = {}
        for (family, _, window, _), (fires, _, _) in timers.items():
            if self._event_time[family]:
                latest[window] = max(fires, latest.get(window, fires))
        return lambda window: max(self._last(window), latest.get(window, _MIN))

    def end(self, window: bytes) -> int:
        """Returns the last microsecond of an encoded window."""
        found = self._ends.get(window)
        if found is None:
            found = self._ends[window] = int(self._window_coder.decode(window).max_timestamp().micros)
        return found

    def wake(self, watermark: int, clock: int) -> bool:
        """Loads the keys for which something is due. Returns whether there are any."""
        if watermark >= MAX:
            clock = NEVER - 1  # no more input: timers that wait for the clock fire before their window is dropped
        self.timers.limits = {True: watermark, False: clock}
        woken = False
        for domain, now in ((EVENT, watermark), (PROCESSING, clock)):
            for key, micros in self._times.due(domain, now):
                self.load(key)
                self._notes[key].came(domain, micros)
                woken = True
        return woken

    def flush(self, watermark: int) -> None:
        """Drops the windows that are over, and writes the others to the bucket's store."""
        timers = self.timers.left()
        for key, notes in self._notes.items():
            kept: dict[bytes, bytes] = {}
            first = {EVENT: NEVER, PROCESSING: NEVER}
            hold = NEVER
            last = self._last_of(timers.get(key, {}))
            for cell, state_key in self._cells[key].items():
                _, _, length = _HEAD.unpack_from(cell)
                over = last(cell[_HEAD.size : _HEAD.size + length]) + 1
                if over <= watermark:
                    continue
                data, _ = self._servicer.get_raw(state_key)
                if data:
                    kept[cell] = data
                    first[EVENT] = min(first[EVENT], over)
            for (family, _, window, tag), (fires, holds, encoded) in timers.get(key, {}).items():
                if last(window) < watermark:
                    continue
                cell = _HEAD.pack(_TIMER, family_number(*family), len(window)) + window + tag
                kept[cell] = _FIRES.pack(fires, holds) + encoded
                domain = EVENT if self._event_time[family] else PROCESSING
                first[domain] = min(first[domain], fires)
                first[EVENT] = min(first[EVENT], last(window) + 1)
                hold = min(hold, holds)
            notes.update(self._times, key, first[EVENT], first[PROCESSING], hold)
            self._keys.put(key, notes.head() + _packed(kept) if kept else None)
        self._least = self._times.least_hold(watermark, self._counts)
        self._keys.flush()
        self._times.flush()

    def _counts(self, key: bytes, hold: int) -> bool:
        record = self._keys.get(key)
        return record is not None and Notes(record).hold == hold

    def hold(self) -> int:
        """Returns how far the output watermark may advance. Known after `flush`."""
        return self._least

    @property
    def is_pending(self) -> bool:
        """Whether anything waits for the clock."""
        return self._times.waits_for_the_clock()

    def timer_coder(self, family: Family) -> CoderImpl:
        return self._timer_coders[family]

    def in_event_time(self, family: Family) -> bool:
        return self._event_time[family]

    def encoded_window(self, window: BoundedWindow) -> bytes:
        encoded: bytes = self._window_coder.encode(window)
        return encoded


class KeyTimers:
    """The timers of the loaded keys, including those that the bundle sets. Timers that are due fire in order."""

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self.limits: Mapping[bool, int] = {True: 0, False: 0}
        """The time up to which timers fire, by whether they are in event time."""
        self._set: dict[Name, Timer] = {}
        self._expired: set[Name] = set()  # timers that have fired for the last time
        self._streams: dict[Family, ClosableOutputStream] = {}

    def put(self, name: Name, fires: int, holds: int, encoded: bytes) -> None:
        """Sets a timer of a loaded key."""
        self._set[name] = (fires, holds, encoded)

    def stream(self, family: Family, coder: CoderImpl) -> ClosableOutputStream:
        """Returns a stream to which the bundle writes the timers of a family."""
        stream = self._streams[family] = ClosableOutputStream()
        return stream

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Yields encoded timers that fire now, until none is left. Timers that are set in between are included.

        Only one timer of a key and window fires at a time, so that its callback can still clear or move a later one.
        """
        while True:
            self._collect()
            first: dict[tuple[str, bytes, bytes], tuple[bool, int, Name]] = {}
            for name, (fires, _, _) in self._set.items():
                family, key, window, _ = name
                event = self._state.in_event_time(family)
                if fires <= self.limits[event]:
                    owner = family[0], key, window
                    order = (not event, fires, name)
                    if owner not in first or order < first[owner]:
                        first[owner] = order
            if not first:
                return
            streams: dict[Family, create_OutputStream] = {}
            for _, _, name in sorted(first.values()):
                fires, _, encoded = self._set.pop(name)
                if self._is_last(name, fires):
                    self._expired.add(name)
                streams.setdefault(name[0], create_OutputStream()).write(encoded)
            for family, out in streams.items():
                yield family, out.get()

    def left(self) -> dict[bytes, dict[Name, Timer]]:
        """Returns the timers that are set and have not fired, by key."""
        self._collect()
        found: dict[bytes, dict[Name, Timer]] = {}
        for name, timer in self._set.items():
            found.setdefault(name[1], {})[name] = timer
        return found

    def _collect(self) -> None:
        for family, stream in self._streams.items():
            if not stream.size():
                continue
            data = taken(stream)
            coder = self._state.timer_coder(family)
            for timer in coder.decode_all(data):
                key = encoded_key(coder, timer)
                self._state.load(key)
                window = self._state.encoded_window(timer.windows[0])
                name = (family, key, window, timer.dynamic_timer_tag.encode())
                self._set.pop(name, None)
                if timer.clear_bit:
                    continue
                fires, holds = int(timer.fire_timestamp.micros), int(timer.hold_timestamp.micros)
                if self._is_last(name, fires) and name in self._expired:
                    continue  # a timer that sets itself again after its last firing would never stop
                out = create_OutputStream()
                coder.encode_to_stream(timer, out, True)
                self._set[name] = (fires, holds, out.get())

    def _is_last(self, name: Name, fires: int) -> bool:
        """Returns whether a timer fires after the end of its window, or by the clock after the end of the input."""
        family, _, window, _ = name
        if self._state.in_event_time(family):
            return fires > self._state.end(window)
        return self.limits[True] >= MAX


def _families(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
) -> tuple[dict[int, Family], dict[Family, bool]]:
    """Returns the names of states and timer families by number, and whether each timer family is in event time."""
    names: dict[int, Family] = {}
    event_time: dict[Family, bool] = {}
    for transform_id, transform in descriptor.transforms.items():
        if not transform.spec.urn.startswith("beam:transform:pardo"):
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        for name in payload.state_specs:
            names[family_number(transform_id, name)] = (transform_id, name)
        for name, spec in payload.timer_family_specs.items():
            names[family_number(transform_id, name)] = (transform_id, name)
            event_time[transform_id, name] = spec.time_domain == beam_runner_api_pb2.TimeDomain.EVENT_TIME
    return names, event_time


def _packed(cells: Mapping[bytes, bytes]) -> bytes:
    return pack(_binary(cells), _binary(cells.values()))


def _binary(values: Iterable[bytes]) -> pa.Array:
    return pa.array(list(values), pa.binary())
