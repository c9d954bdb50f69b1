"""The side inputs of a stage in a streaming pipeline. Elements wait in state until the windows that they use are ready.

A window of a side input is ready when the watermark of the side input has passed it. If the side input is triggered,
the window is also ready when it has any element.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from apache_beam.transforms import trigger
from apache_beam.transforms.window import GlobalWindow, GlobalWindows

from rmqio.runners.spark.beam.private import SideInputData as BeamSideInputData
from rmqio.runners.spark.beam.private import (
    beam_runner_api_pb2,
    create_InputStream,
    create_OutputStream,
    is_singleton_view,
)
from rmqio.runners.spark.streaming.state import NEVER, Store
from rmqio.runners.spark.worker.shuffling import pack, unpack
from rmqio.runners.spark.worker.state import SideInputData
from rmqio.runners.spark.worker.task import Bundles

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.windowed_value import WindowedValue


# Stores one side input of a streaming pipeline in a bucket, by window, so that expired windows can be dropped.

Part = tuple[bytes, int, int]  # window, number of the segment, the last microsecond of the window
_SEGMENT: Final = struct.Struct(">cIII")
_HEAD: Final = struct.Struct("<Q")  # how often it has changed
_PART: Final = struct.Struct("<Iq")  # number of a segment, the last microsecond of its window
_WHOLE: Final = b""


class Kept:
    """One side input in one bucket: segments, and an entry with the window of each segment."""

    def __init__(self, store: Store, stage: int, number: int, coder: Coder, latest: bool) -> None:
        """Args: `coder`: the coder of whole elements. `latest`: whether a later element replaces an earlier one."""
        self._store = store
        self._stage, self._number = stage, number
        self._coder = coder
        self._latest = latest
        self._entry = _NAME.pack(b"i", stage, number)
        found = store.get(self._entry)
        self.version = _HEAD.unpack_from(found)[0] if found else 0
        windows, parts = unpack(found[_HEAD.size :]) if found else ([], [])
        self._parts: list[Part] = [(window, *_PART.unpack(part)) for window, part in zip(windows, parts, strict=True)]
        self._changed = False

    def add_whole(self, rows: Sequence[bytes]) -> None:
        """Adds encoded elements that are all in one window, which never expires."""
        if rows:
            self._put(_WHOLE, NEVER, b"".join(rows))

    def add(self, rows: Iterable[bytes]) -> None:
        """Adds encoded elements."""
        impl = self._coder.get_impl()
        by_window: dict[BoundedWindow, list[WindowedValue]] = {}
        for row in rows:
            stream = create_InputStream(row)
            while stream.size() > 0:
                element = impl.decode_from_stream(stream, True)
                for window in element.windows:
                    one = element.with_value(element.value)
                    one.windows = (window,)
                    by_window.setdefault(window, []).append(one)
        for window, elements in by_window.items():
            name = self._coder.window_coder.encode(window)
            if self._latest:
                elements = [max(elements, key=_age)]
                self._drop(lambda part, name=name: part[0] == name)
            out = create_OutputStream()
            for element in elements:
                impl.encode_to_stream(element, out, True)
            self._put(name, int(window.max_timestamp().micros), out.get())

    def expire(self, until: int) -> None:
        """Drops the windows whose last microsecond is before `until`."""
        self._drop(lambda part: part[2] < until)

    def flush(self) -> None:
        """Writes the changes to the bucket's store."""
        if not self._changed:
            return
        windows = pa.array([window for window, _, _ in self._parts], pa.binary())
        parts = pa.array([_PART.pack(number, last) for _, number, last in self._parts], pa.binary())
        self._store.put(self._entry, _HEAD.pack(self.version) + pack(windows, parts))
        self._changed = False

    def load(self) -> list[bytes]:
        """Returns all segments, the oldest first."""
        found = (self._store.get(self._segment(number)) for _, number, _ in self._parts)
        return [segment for segment in found if segment is not None]

    def _put(self, window: bytes, last: int, segment: bytes) -> None:
        number = 1 + max((number for _, number, _ in self._parts), default=-1)
        self._parts.append((window, number, last))
        self._store.put(self._segment(number), segment)
        self._note()

    def _drop(self, is_over: Callable[..., bool]) -> None:
        """Drops the parts for which `is_over` returns True."""
        over = [part for part in self._parts if is_over(part)]
        for part in over:
            self._parts.remove(part)
            self._store.put(self._segment(part[1]), None)
            self._note()

    def _note(self) -> None:
        self.version += 1
        self._changed = True

    def _segment(self, number: int) -> bytes:
        return _SEGMENT.pack(b"j", self._stage, self._number, number)


def _age(element: WindowedValue) -> tuple[int, int]:
    """Returns a sort key for firings: the pane's number, then the timestamp."""
    return element.pane_info.index, int(element.timestamp.micros)


_NAME: Final = struct.Struct(">cII")
_HOLD: Final = struct.Struct("<q")


class Held:
    """Holds a side input for the bundles of a stage, as a broadcast does in bounded pipelines."""

    def __init__(self) -> None:
        self.value = SideInputData([])
        self.version = 0
        """Equal in all buckets in which the side input is equal."""
        self._known: dict[int, tuple[int, SideInputData]] = {}

    def serve(self, bucket: int, version: int, load: Callable[[], list[bytes]]) -> None:
        """Sets the side input to that of a bucket. Loads it again only if it has changed."""
        known = self._known.get(bucket)
        if known is None or known[0] != version:
            known = self._known[bucket] = (version, SideInputData(load()))
        self.version, self.value = known


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a side input by a transform of the stage."""

    name: str
    mapping: Callable[[BoundedWindow], BoundedWindow]
    """Maps a window of the elements to a window of the side input."""
    windowing: Windowing
    """The windowing of the side input."""
    is_singleton: bool

    @property
    def is_triggered(self) -> bool:
        """Whether a window may have elements before its end."""
        return not isinstance(self.windowing.triggerfn, trigger.DefaultTrigger)


class SideState:
    """The side inputs of one stage in one bucket, for one micro-batch."""

    def __init__(self, store: Store, stage: int, bundles: Bundles, held: Mapping[str, Held]) -> None:
        self._store = store
        self._stage = stage
        self._bundles = bundles
        self._held = held
        self._numbers = {name: number for number, name in enumerate(sorted(held))}
        self._uses = _uses(bundles)
        self._watermarks: dict[str, int] = {}
        self._waiting = _NAME.pack(b"h", stage, 0)

    @property
    def only_global(self) -> bool:
        """Whether all side inputs are in the global window. If so, all elements wait together."""
        return all(use.windowing.windowfn == GlobalWindows() for use in self._uses)

    def take(self, bucket: int, rows: Mapping[str, Sequence[bytes]], watermarks: Mapping[str, int], until: int) -> None:
        """Adds new elements of each side input, and sets its watermark.

        Args:
          until: microseconds; no more elements come that use a window which ends before that.
        """
        self._watermarks = dict(watermarks)
        until = min(until, self.hold())
        for name, held in self._held.items():
            uses = [use for use in self._uses if use.name == name]
            spec = next(each for each in self._bundles.side_specs if each.name == name)
            coder = self._bundles.context.coders.get_by_id(spec.coder_id)
            latest = all(use.is_singleton and use.is_triggered for use in uses)
            kept = Kept(self._store, self._stage, self._numbers[name], coder, latest)
            if all(use.windowing.windowfn == GlobalWindows() for use in uses) and not latest:
                kept.add_whole(rows.get(name, ()))
            else:
                kept.add(rows.get(name, ()))
                kept.expire(until)
            kept.flush()
            held.serve(bucket, kept.version, kept.load)

    def of_global_windows(self) -> tuple[int, ...]:
        """Returns the versions of the side inputs in the global window. A DoFn keeps what it has received of those."""
        uses = [use.name for use in self._uses if use.windowing.windowfn == GlobalWindows()]
        return tuple(self._held[name].version for name in uses)

    def is_ready(self, window: BoundedWindow) -> bool:
        """Returns whether elements in a window can be processed."""
        for use in self._uses:
            side = use.mapping(window)
            if int(side.max_timestamp().micros) < self._watermarks[use.name]:
                continue
            if not use.is_triggered or not self._has_some(use.name, side):
                return False
        return True

    def _has_some(self, name: str, window: BoundedWindow) -> bool:
        spec = next(each for each in self._bundles.side_specs if each.name == name)
        coder = self._bundles.context.coders.get_by_id(spec.coder_id)
        view = self._held[name].value.view(spec.multimap, coder)
        return coder.window_coder.encode(window) in view

    def divide(self, found: Iterable[bytes], watermark: int) -> list[bytes]:
        """Returns the ready elements, of those that are new and those that waited. The others wait.

        A waiting element holds the output watermark back to where the watermark was when the element came.
        """
        before = self._load()
        ready: list[bytes] = []
        waiting: list[tuple[int, bytes]] = []
        everything = self.only_global and self.is_ready(GlobalWindow())
        for hold, encoded in [*before, *((watermark, each) for each in found)]:
            if self.only_global:
                now, later = (encoded, b"") if everything else (b"", encoded)
            else:
                now, later = self._parted(encoded)
            ready += [now] if now else []
            waiting += [(hold, later)] if later else []
        if waiting:
            holds = pa.array([_HOLD.pack(hold) for hold, _ in waiting], pa.binary())
            self._store.put(self._waiting, pack(holds, pa.array([encoded for _, encoded in waiting], pa.binary())))
        elif before:
            self._store.put(self._waiting, None)
        return ready

    def hold(self) -> int:
        """Returns how far the output watermark may advance."""
        return min((hold for hold, _ in self._load()), default=NEVER)

    def _load(self) -> list[tuple[int, bytes]]:
        found = self._store.get(self._waiting)
        if found is None:
            return []
        return [(_HOLD.unpack(hold)[0], encoded) for hold, encoded in zip(*unpack(found), strict=True)]

    def _parted(self, encoded: bytes) -> tuple[bytes, bytes]:
        """Returns the elements that are ready, and those that are not."""
        impl = self._bundles.input_coder.get_impl()
        stream = create_InputStream(encoded)
        ready, waiting = create_OutputStream(), create_OutputStream()
        while stream.size() > 0:
            element = impl.decode_from_stream(stream, True)
            for window in element.windows:
                out = ready if self.is_ready(window) else waiting
                one = element.with_value(element.value)
                one.windows = (window,)
                impl.encode_to_stream(one, out, True)
        return ready.get(), waiting.get()


def _uses(bundles: Bundles) -> list[Use]:
    found = []
    for spec in bundles.side_specs:
        transform = bundles.descriptor.transforms[spec.transform_id]
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        data = BeamSideInputData.from_runner_api(payload.side_inputs[spec.tag], bundles.context)
        pcollection = bundles.descriptor.pcollections[spec.name]
        windowing = bundles.context.windowing_strategies.get_by_id(pcollection.windowing_strategy_id)
        found.append(Use(spec.name, data.window_mapping_fn, windowing, is_singleton_view(data.view_fn)))
    return found
