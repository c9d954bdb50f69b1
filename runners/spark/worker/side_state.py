"""Side inputs of a stage in a streaming pipeline: kept in each bucket, and what has to wait for them.

A window of a side input is ready when its watermark has passed it or, where it is triggered, when something of it is
there. Elements wait in state until all windows that they look at are ready.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from apache_beam import pvalue
from apache_beam.coders.coder_impl import create_InputStream, create_OutputStream
from apache_beam.transforms import trigger
from apache_beam.transforms.window import GlobalWindow, GlobalWindows

from rmqio.runners.spark.beam_private import beam_runner_api_pb2
from rmqio.runners.spark.worker.bundles import Bundles
from rmqio.runners.spark.worker.keys import NEVER
from rmqio.runners.spark.worker.packing import pack, unpack
from rmqio.runners.spark.worker.side_inputs import SideInputData
from rmqio.runners.spark.worker.store import Store

_NAME: Final = struct.Struct(">cII")  # kind, stage, number of the side input
_COUNT: Final = struct.Struct("<I")
_SEGMENT: Final = struct.Struct(">cIII")
_HOLD: Final = struct.Struct("<q")


class Held:
    """Where a bundle finds a side input: what a broadcast is to bounded pipelines."""

    def __init__(self) -> None:
        self.value = SideInputData([])
        self._known: dict[int, tuple[int, SideInputData]] = {}

    def serve(self, bucket: int, count: int, load: Callable[[], list[bytes]]) -> None:
        """The side input of a bucket, which has so many segments; those that are known are not loaded again."""
        known = self._known.get(bucket)
        if known is None or known[0] != count:
            known = self._known[bucket] = (count, SideInputData(load()))
        self.value = known[1]


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
        """Whether all side inputs are in the global window: then all elements wait together."""
        return all(windowing.windowfn == GlobalWindows() for _, _, windowing in self._uses)

    def take(self, bucket: int, rows: Mapping[str, Sequence[bytes]], watermarks: Mapping[str, int]) -> None:
        """Takes what has come of each side input, and how far its watermark has."""
        self._watermarks = dict(watermarks)
        for name, held in self._held.items():
            number = self._numbers[name]
            entry = _NAME.pack(b"i", self._stage, number)
            found = self._store.get(entry)
            (count,) = _COUNT.unpack(found) if found else (0,)
            if rows.get(name):
                self._store.put(_SEGMENT.pack(b"j", self._stage, number, count), b"".join(rows[name]))
                count += 1
                self._store.put(entry, _COUNT.pack(count))

            def load(number: int = number, count: int = count) -> list[bytes]:
                names = [_SEGMENT.pack(b"j", self._stage, number, at) for at in range(count)]
                return [segment for each in names if (segment := self._store.get(each)) is not None]

            held.serve(bucket, count, load)

    def is_ready(self, window: Any) -> bool:
        """Whether elements in a window may be run."""
        for name, mapping, windowing in self._uses:
            side = mapping(window)
            if int(side.max_timestamp().micros) < self._watermarks[name]:
                continue
            if isinstance(windowing.triggerfn, trigger.DefaultTrigger) or not self._has_some(name, side):
                return False
        return True

    def _has_some(self, name: str, window: Any) -> bool:
        spec = next(each for each in self._bundles.side_specs if each.name == name)
        coder = self._bundles.context.coders.get_by_id(spec.coder_id)
        view = self._held[name].value.view(spec.multimap, coder)
        return coder.window_coder.encode(window) in view

    def divide(self, found: Iterable[bytes], watermark: int) -> list[bytes]:
        """What is ready of all that has come and waited; the rest waits on and holds the output watermark back.

        What waits holds it at where the watermark was when it came.
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
        """How far the output watermark may go."""
        return min((hold for hold, _ in self._load()), default=NEVER)

    def _load(self) -> list[tuple[int, bytes]]:
        found = self._store.get(self._waiting)
        if found is None:
            return []
        return [(_HOLD.unpack(hold)[0], encoded) for hold, encoded in zip(*unpack(found), strict=True)]

    def _parted(self, encoded: bytes) -> tuple[bytes, bytes]:
        """Elements that are ready, and those that are not."""
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


def _uses(bundles: Bundles) -> list[tuple[str, Callable[[Any], Any], Any]]:
    """Of each use of a side input: its name, how windows are mapped to its own, and its windowing."""
    found = []
    for spec in bundles.side_specs:
        transform = bundles.descriptor.transforms[spec.transform_id]
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        data = pvalue.SideInputData.from_runner_api(payload.side_inputs[spec.tag], bundles.context)
        pcollection = bundles.descriptor.pcollections[spec.name]
        windowing = bundles.context.windowing_strategies.get_by_id(pcollection.windowing_strategy_id)
        found.append((spec.name, data.window_mapping_fn, windowing))
    return found
