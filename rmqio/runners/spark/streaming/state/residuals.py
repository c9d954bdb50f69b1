"""Keeps the residuals of splittable DoFns in a streaming pipeline in a bucket until a later micro-batch, when due."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmqio.runners.spark.streaming.state.keys import NEVER
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.bundles import delay_of
from rmqio.runners.spark.worker.shuffling.packing import pack, unpack

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import beam_fn_api_pb2

_NAME: Final = struct.Struct(">cI")
_HEAD: Final = struct.Struct("<qq")  # when it is due, and the time at which it holds the output watermark


class Residuals:
    """The residuals of one stage in one bucket. One entry holds all: a splittable DoFn without end has few elements."""

    def __init__(self, store: Store, stage: int) -> None:
        self._store = store
        self._name = _NAME.pack(b"r", stage)
        found = store.get(self._name)
        heads, elements = unpack(found) if found else ([], [])
        self._kept = [(*_HEAD.unpack(head), element) for head, element in zip(heads, elements, strict=True)]

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
        heads = pa.array([_HEAD.pack(time, hold) for time, hold, _ in self._kept], pa.binary())
        self._store.put(self._name, pack(heads, pa.array([element for _, _, element in self._kept], pa.binary())))


def _micros(time: Any) -> int:
    """Protobuf's own conversion refuses times before the year 1, and a watermark that has not moved is before it."""
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1000
