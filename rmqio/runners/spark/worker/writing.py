"""Write operations at the end of a fused stage: turn elements into rows, in the form that their reader needs.

Beam's bundle processor makes them from transforms with `WRITE_URN`, as it makes its own sinks. An element is encoded
once, here. Its key and value are encoded separately if a shuffle follows. Nothing decodes them again before the stage
that reads them. `_create` chooses one of the operations.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.operations import StageOperation
from rmqio.runners.spark.beam.private import create_OutputStream
from rmqio.runners.spark.model import WRITE_URN, Form, Grouping, GroupSpec, Output
from rmqio.runners.spark.worker.rows import ROW_SCHEMA
from rmqio.runners.spark.worker.shuffling import pack, parted, timestamp_combiner, varint, window_header

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp
    from apache_beam.utils.windowed_value import WindowedValue
    from numpy.typing import NDArray

    from rmqio.runners.spark.beam.private import (
        BeamTransformFactory,
        Operation,
        beam_runner_api_pb2,
        create_OutputStream,
    )
    from rmqio.runners.spark.worker.rows import RowWriter


# The base of all write operations: the operations of Beam at the end of a fused stage.


class WriteOperation(StageOperation):
    """The end of a stage. Elements that `process` receives are written to rows in `finish` at the latest."""

    def __init__(
        self,
        name: str,
        transform_id: str,
        factory: BeamTransformFactory,
        rows: RowWriter,
        channel: int,
    ) -> None:
        super().__init__(name, transform_id, factory)
        self._rows = rows
        self._channel = channel

    def handle(self, element: WindowedValue, value: Any) -> None:
        """Processes a value with the timestamp, windows and pane of `element`: see fusion.py."""
        self.process(element.with_value(value))


# Writes of encoded elements, for a reader that needs no keys: in order, or redistributed over the partitions.

_CHUNK_BYTES: Final = 128 << 10
# Up to these limits, a dealt output is held back and dealt evenly. Hashes spread more elements evenly enough.
_DEAL_BYTES: Final = 1 << 20
_DEAL_ELEMENTS: Final = 4_096


class PlainWrite(WriteOperation):
    """Writes chunks of encoded elements, in order."""

    def __init__(self, *args: Any, coder: Coder) -> None:
        super().__init__(*args)
        self._encode = coder.get_impl().encode_to_stream
        self._stream = create_OutputStream()

    def process(self, element: WindowedValue) -> None:
        stream = self._stream
        self._encode(element, stream, True)
        if stream.size() >= _CHUNK_BYTES:
            self._flush()

    def finish(self) -> None:
        super().finish()
        self._flush()

    def _flush(self) -> None:
        if self._stream.size():
            self._rows.write(self._channel, 0, None, self._stream.get())
            self._stream = create_OutputStream()


class DealtWrite(WriteOperation):
    """Writes chunks for each partition, spread evenly.

    Few elements are sorted and dealt in turn. Many elements are dealt by their hashes. Both depend only on the elements
    and not on their order, so a task that Spark runs again deals the same way. With round robin, rows would be lost or
    duplicated.
    """

    def __init__(self, *args: Any, coder: Coder, buckets: int) -> None:
        super().__init__(*args)
        self._encode = coder.get_impl().encode_nested
        self._buckets = buckets
        self._held: list[bytes] | None = []
        self._held_bytes = 0
        self._chunks: list[list[bytes]] = [[] for _ in range(buckets)]
        self._sizes = [0] * buckets

    def process(self, element: WindowedValue) -> None:
        encoded = self._encode(element)
        if self._held is None:
            self._deal(zlib.crc32(encoded) % self._buckets, encoded)
            return
        self._held.append(encoded)
        self._held_bytes += len(encoded)
        if self._held_bytes > _DEAL_BYTES or len(self._held) > _DEAL_ELEMENTS:
            held, self._held = self._held, None
            for each in held:
                self._deal(zlib.crc32(each) % self._buckets, each)

    def finish(self) -> None:
        super().finish()
        if self._held:
            self._held.sort()
            first = zlib.crc32(self._held[0])  # so that not all tasks with one element choose partition 0
            for at, encoded in enumerate(self._held, first):
                self._deal(at % self._buckets, encoded)
        self._held, self._held_bytes = [], 0
        for bucket in range(self._buckets):
            self._flush(bucket)

    def _deal(self, bucket: int, encoded: bytes) -> None:
        self._chunks[bucket].append(encoded)
        self._sizes[bucket] += len(encoded)
        if self._sizes[bucket] >= _CHUNK_BYTES:
            self._flush(bucket)

    def _flush(self, bucket: int) -> None:
        if self._chunks[bucket]:
            self._rows.write(self._channel, bucket, None, b"".join(self._chunks[bucket]))
            self._chunks[bucket] = []
            self._sizes[bucket] = 0


# Writes of runs by key, for a GroupByKey in the global window or a DoFn with state: one row for a key and its run.

FLUSH_BYTES: Final = 8 << 20
FLUSH_ELEMENTS: Final = 200_000
# Types whose equal values have equal encodings, so that the value itself can be looked up. float and bool are not among
# them, because their values can be equal to an int.
_PLAIN_KEYS: Final = frozenset({str, bytes, int})


class RunWrite(WriteOperation):
    """Writes runs of encoded values by key: what elements of the same key have in common goes into one row.

    A table gives each key (or key and window) a number. Numbers and encoded values are collected in the order of the
    elements. When the table is flushed, Arrow sorts them by number. An element therefore costs one lookup and one
    encoding.
    """

    def __init__(self, *args: Any, kv_coder: Coder, buckets: int) -> None:
        super().__init__(*args)
        self._encode_key = kv_coder.key_coder().get_impl().encode_nested
        self._buckets = buckets
        self._clear()

    def _clear(self) -> None:
        self._stream = create_OutputStream()
        self._ends = array("q")
        self._numbers = array("i")
        self._keys: list[bytes] = []  # encoded, by number
        self._plain: dict[object, int] = {}
        self._encoded: dict[bytes, int] = {}

    def _number(self, key: object) -> int:
        """Returns the number of a key in the table. Adds a new key."""
        if type(key) in _PLAIN_KEYS:
            number = self._plain.get(key)
            if number is None:
                number = self._plain[key] = len(self._keys)
                self._keys.append(self._encode_key(key))
            return number
        encoded = self._encode_key(key)
        number = self._encoded.get(encoded)
        if number is None:
            number = self._encoded[encoded] = len(self._keys)
            self._keys.append(encoded)
        return number

    def finish(self) -> None:
        super().finish()
        self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> list[bytes] | None:
        """Returns the header of each run; None if runs have no headers."""
        raise NotImplementedError

    def _flush(self) -> None:
        if not self._ends:
            self._clear()  # an element that is in no window has left its key here
            return
        numbers = np.frombuffer(self._numbers, dtype=np.int32)
        elements = len(numbers)
        offsets = np.zeros(elements + 1, dtype=np.int32)
        offsets[1:] = np.frombuffer(self._ends, dtype=np.int64)
        runs = _binary(offsets, pa.py_buffer(self._stream.get()))
        keys = self._keys
        counts = np.bincount(numbers, minlength=len(keys))
        if elements > len(keys):
            runs = runs.take(pa.array(np.argsort(numbers, kind="stable")))
            ends = np.frombuffer(runs.buffers()[1], dtype=np.int32)[: elements + 1]
            starts = np.zeros(len(keys) + 1, dtype=np.int64)
            np.cumsum(counts, out=starts[1:])
            runs = _binary(np.ascontiguousarray(ends[starts]), runs.buffers()[2])
        heads = self._heads(counts)
        if heads is not None:
            runs = pc.binary_join_element_wise(pa.array(heads, pa.binary()), runs, pa.scalar(b"", pa.binary()))
        self._put(keys, runs)
        self._clear()

    def _put(self, keys: list[bytes], runs: pa.Array) -> None:
        buckets = self._buckets
        self._rows.put(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(len(keys), self._channel, dtype=np.int32)),
                    pa.array([zlib.crc32(key) % buckets for key in keys], pa.int32()),
                    pa.array(keys, pa.binary()),
                    runs,
                ],
                schema=ROW_SCHEMA,
            )
        )


class GlobalWrite(RunWrite):
    """Writes for a GroupByKey in the global window that fires once: neither windows nor timestamps matter."""

    def __init__(self, *args: object, kv_coder: Coder, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = kv_coder.value_coder().get_impl().encode_to_stream

    def process(self, element: WindowedValue) -> None:
        self.handle(element, element.value)

    def handle(self, element: WindowedValue, value: tuple[object, object]) -> None:
        key, each = value
        # `_number` is inlined, because this runs for each element
        number = self._plain.get(key) if type(key) in _PLAIN_KEYS else None
        self._numbers.append(self._number(key) if number is None else number)
        stream = self._stream
        self._encode(each, stream, True)
        ends = self._ends
        ends.append(size := stream.size())
        if size >= FLUSH_BYTES or len(ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> list[bytes]:
        return [varint(count) for count in counts.tolist()]


class WholeWrite(RunWrite):
    """Writes whole elements by key for a DoFn with state or timers; without the key, for a triggered GroupByKey."""

    def __init__(self, *args: object, kv_coder: Coder, coder: Coder, only_value: bool, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = coder.get_impl().encode_to_stream
        self._only_value = only_value

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        self._numbers.append(self._number(key))
        self._encode(element.with_value(value) if self._only_value else element, self._stream, True)
        self._ends.append(self._stream.size())
        if self._stream.size() >= FLUSH_BYTES or len(self._ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> None:
        return None


def _binary(offsets: NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])


# Writes of runs by key and window: for a GroupByKey that fires once per window, and for what waits in state.


class WindowedWrite(RunWrite):
    """Writes for a GroupByKey that fires once per window: a run by key and window, with its combined timestamp."""

    def __init__(self, *args: object, kv_coder: Coder, windowing: Windowing, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = kv_coder.value_coder().get_impl().encode_to_stream
        self._encode_window = windowing.windowfn.get_window_coder().encode
        self._combiner = timestamp_combiner(windowing)

    def _clear(self) -> None:
        super()._clear()
        self._by_window: dict[BoundedWindow, dict[int, int]] = {}
        self._groups: list[tuple[int, BoundedWindow]] = []  # number of the key, and window; by number of the group
        self._times: list[Timestamp | None] = []

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        number = self._number(key)
        combiner = self._combiner
        for window in element.windows:
            table = self._by_window.get(window)
            if table is None:
                table = self._by_window[window] = {}
            group = table.get(number)
            if group is None:
                group = table[number] = len(self._groups)
                self._groups.append((number, window))
                self._times.append(combiner and combiner.assign_output_time(window, element.timestamp))
            elif combiner is not None:
                time = combiner.assign_output_time(window, element.timestamp)
                self._times[group] = combiner.combine(self._times[group], time)
            self._numbers.append(group)
            self._encode(value, self._stream, True)
            self._ends.append(self._stream.size())
        if self._stream.size() >= FLUSH_BYTES or len(self._ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _flush(self) -> None:
        self._keys = [self._keys[number] for number, _ in self._groups]
        super()._flush()

    def _heads(self, counts: NDArray[np.intp]) -> list[bytes] | None:
        windows = {window: self._encode_window(window) for window in self._by_window}
        return [
            window_header(windows[window], time) + varint(count)
            for (_, window), time, count in zip(self._groups, self._times, counts.tolist(), strict=True)
        ]


class WindowsWrite(WindowedWrite):
    """Does the same in streaming: writes a row for each bucket and window.

    The key of the row is the window, and its value holds all keys and runs. Elements that wait for their window
    therefore stay in state as they arrived, and are not examined before the window fires.
    """

    def _put(self, keys: list[bytes], runs: pa.Array) -> None:
        numbers = {window: number for number, window in enumerate(self._by_window)}
        encoded = [self._encode_window(window) for window in self._by_window]
        buckets = self._buckets
        places = np.array(
            [
                numbers[group[1]] * buckets + zlib.crc32(key) % buckets
                for group, key in zip(self._groups, keys, strict=True)
            ]
        )
        for place, part_keys, part_runs in parted(places, pa.array(keys, pa.binary()), runs):
            window, bucket = divmod(place, buckets)
            self._rows.write(self._channel, bucket, encoded[window], pack(part_keys, part_runs))


class WindowElementsWrite(WindowsWrite):
    """Does the same with runs of whole elements, each in one window."""

    def __init__(
        self,
        *args: object,
        kv_coder: Coder,
        windowing: Windowing,
        buckets: int,
        encode: Callable[[WindowedValue, create_OutputStream, bool], None],
        opaque: bool,
    ) -> None:
        """Args: `encode` encodes whole elements; `opaque`: their values are encoded values without keys."""
        super().__init__(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
        self._encode_value = kv_coder.value_coder().get_impl().encode_nested
        self._encode = encode
        self._opaque = opaque

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        number = self._number(key)
        whole = self._encode_value(value) if self._opaque else element.value
        for window in element.windows:
            table = self._by_window.get(window)
            if table is None:
                table = self._by_window[window] = {}
            group = table.get(number)
            if group is None:
                group = table[number] = len(self._groups)
                self._groups.append((number, window))
            self._numbers.append(group)
            one = WindowedValue(whole, element.timestamp, (window,), element.pane_info)
            self._encode(one, self._stream, True)
            self._ends.append(self._stream.size())
        if self._stream.size() >= FLUSH_BYTES or len(self._ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> None:
        return None


__all__ = ["CREATORS", "WriteOperation", "payload"]


@dataclass(frozen=True, slots=True)
class _Spec:
    """The payload of a transform with `WRITE_URN`."""

    channel: int
    form: Form
    buckets: int
    coder_id: str
    group: GroupSpec | None

    def to_bytes(self) -> bytes:
        group = self.group and (self.group.grouping.value, self.group.kv_coder_id, self.group.windowing_id)
        return json.dumps([self.channel, self.form.value, self.buckets, self.coder_id, group]).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> _Spec:
        channel, form, buckets, coder_id, group = json.loads(payload)
        spec = group and GroupSpec(Grouping(group[0]), group[1], group[2])
        return cls(channel, Form(form), buckets, coder_id, spec)


def payload(output: Output, coder_id: str, group: GroupSpec | None) -> bytes:
    """Returns the payload of a transform with `WRITE_URN`."""
    return _Spec(output.channel, output.form, output.buckets, coder_id, group).to_bytes()


def _create(
    factory: BeamTransformFactory,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    parameter: bytes,
    consumers: dict[str, list[Operation]],
) -> WriteOperation:
    spec = _Spec.from_bytes(parameter)
    args = (transform.unique_name, transform_id, factory, factory.data_channel_factory.rows, spec.channel)
    form, buckets = spec.form, spec.buckets
    coder_of: Callable[[str], Coder] = factory.context.coders.get_by_id
    coder = coder_of(spec.coder_id)
    if form is Form.PLAIN:
        return PlainWrite(*args, coder=coder)
    if form is Form.DEALT:
        return DealtWrite(*args, coder=coder, buckets=buckets)
    if form is Form.KEYED:
        return WholeWrite(*args, kv_coder=coder.wrapped_value_coder, coder=coder, only_value=False, buckets=buckets)
    assert spec.group is not None  # as for all other forms
    grouping = spec.group.grouping
    kv_coder = coder_of(spec.group.kv_coder_id)
    if form is Form.GROUPED and grouping is Grouping.GLOBAL:
        return GlobalWrite(*args, kv_coder=kv_coder, buckets=buckets)
    windowing = factory.context.windowing_strategies.get_by_id(spec.group.windowing_id)
    if form is Form.STATEFUL or (form is Form.WINDOWS and grouping is Grouping.TRIGGERED):
        opaque = form is Form.WINDOWS
        if opaque:
            coder = WindowedValueCoder(BytesCoder(), windowing.windowfn.get_window_coder())
        encode = coder.get_impl().encode_to_stream
        return WindowElementsWrite(
            *args, kv_coder=kv_coder, windowing=windowing, buckets=buckets, encode=encode, opaque=opaque
        )
    if form is Form.WINDOWS:
        return WindowsWrite(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
    if grouping is Grouping.WINDOWED:
        return WindowedWrite(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
    values = WindowedValueCoder(kv_coder.value_coder(), windowing.windowfn.get_window_coder())
    return WholeWrite(*args, kv_coder=kv_coder, coder=values, only_value=True, buckets=buckets)


CREATORS: Final[Mapping[str, Callable[..., WriteOperation]]] = MappingProxyType({WRITE_URN: _create})
"""The functions that make operations, by the URN of the transform; see `beam.patches`."""
