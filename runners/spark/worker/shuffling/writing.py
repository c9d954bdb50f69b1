"""Operations at the end of a fused stage: elements become rows, in the form that their reader needs.

Beam's bundle processor makes them from transforms with the URNs below, as it makes its own sinks. An element is encoded
once, here, key and value apart where a shuffle follows; nothing decodes it again before the stage that reads it.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.private import (
    beam_runner_api_pb2,
    common,
    create_OutputStream,
    operations,
)
from rmqio.runners.spark.model import WRITE_URN, Form, Grouping, GroupSpec, Output
from rmqio.runners.spark.worker.rows import ROW_SCHEMA, RowWriter
from rmqio.runners.spark.worker.shuffling.framing import varint, window_header
from rmqio.runners.spark.worker.shuffling.packing import pack, parted

_CHUNK_BYTES: Final = 128 << 10
_FLUSH_BYTES: Final = 8 << 20
_FLUSH_ELEMENTS: Final = 200_000
# Up to here a dealt output is held back and dealt evenly; more elements are even enough by their hashes.
_DEAL_BYTES: Final = 1 << 20
_DEAL_ELEMENTS: Final = 4_096
# Types whose equal values have equal encodings, so that the value itself can be looked up. Not float and bool, which
# compare equal to int.
_PLAIN_KEYS: Final = frozenset({str, bytes, int})


def payload(output: Output, coder_id: str, group: GroupSpec | None) -> bytes:
    """The payload of a transform with `WRITE_URN`."""
    return json.dumps(
        {
            "channel": output.channel,
            "form": output.form.value,
            "buckets": output.buckets,
            "coder": coder_id,
            "group": group and [group.grouping.value, group.kv_coder_id, group.windowing_id],
        }
    ).encode()


class WriteOperation(operations.Operation):
    """The end of a stage: what `process` is given goes to rows by `finish` at the latest."""

    def __init__(self, name: str, transform_id: str, factory: Any, rows: RowWriter, channel: int) -> None:
        super().__init__(common.NameContext(name, transform_id), None, factory.counter_factory, factory.state_sampler)
        self._rows = rows
        self._channel = channel

    def handle(self, element: WindowedValue, value: Any) -> None:
        """As `process`, of a value with the timestamp, the windows and the pane of `element`: see fused_dofns.py."""
        self.process(element.with_value(value))


class PlainWrite(WriteOperation):
    """Chunks of encoded elements, in order."""

    def __init__(self, *args: Any, coder: Any) -> None:
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
    """Chunks for each partition, spread evenly.

    Few elements are sorted and dealt in turn, many go by their hash. Both depend on the elements alone, not on their
    order, so a task that Spark runs again deals the same way: with round robin, rows would be lost or doubled.
    """

    def __init__(self, *args: Any, coder: Any, buckets: int) -> None:
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
            first = zlib.crc32(self._held[0])  # so that tasks with one element each do not all choose partition 0
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


class RunWrite(WriteOperation):
    """Runs of encoded values for each key: what elements of the same key have in common goes into one row.

    A table gives each key (or key and window) a number; numbers and encoded values are collected one after the other
    and sorted apart by Arrow when the table is flushed, so that an element costs one lookup and one encoding.
    """

    def __init__(self, *args: Any, kv_coder: Any, buckets: int) -> None:
        super().__init__(*args)
        self._encode_key = kv_coder.key_coder().get_impl().encode_nested
        self._buckets = buckets
        self._clear()

    def _clear(self) -> None:
        self._stream = create_OutputStream()
        self._ends = array("q")
        self._numbers = array("i")
        self._keys: list[bytes] = []  # encoded, by number
        self._plain: dict[Any, int] = {}
        self._encoded: dict[bytes, int] = {}

    def _number(self, key: Any) -> int:
        """The number of a key in the table."""
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

    def _heads(self, counts: Any) -> list[bytes] | None:
        """What stands before each run; None: nothing."""
        raise NotImplementedError

    def _flush(self) -> None:
        if not self._ends:
            self._clear()  # an element that is in no window has left its key
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
    """For a GroupByKey in the global window, fired once: neither window nor timestamp matters."""

    def __init__(self, *args: Any, kv_coder: Any, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = kv_coder.value_coder().get_impl().encode_to_stream

    def process(self, element: WindowedValue) -> None:
        self.handle(element, element.value)

    def handle(self, element: WindowedValue, value: Any) -> None:
        key, value = value
        # `_number` written out: this runs for each element
        number = self._plain.get(key) if type(key) in _PLAIN_KEYS else None
        self._numbers.append(self._number(key) if number is None else number)
        stream = self._stream
        self._encode(value, stream, True)
        ends = self._ends
        ends.append(size := stream.size())
        if size >= _FLUSH_BYTES or len(ends) >= _FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: Any) -> list[bytes]:
        return [varint(count) for count in counts.tolist()]


class WindowedWrite(RunWrite):
    """For a GroupByKey that fires once a window: a run for each key and window, with its combined timestamp."""

    def __init__(self, *args: Any, kv_coder: Any, windowing: Any, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = kv_coder.value_coder().get_impl().encode_to_stream
        self._encode_window = windowing.windowfn.get_window_coder().encode
        self._combiner = timestamp_combiner(windowing)

    def _clear(self) -> None:
        super()._clear()
        self._by_window: dict[Any, dict[int, int]] = {}
        self._groups: list[tuple[int, Any]] = []  # number of the key, window; by number of the group
        self._times: list[Any] = []

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
        if self._stream.size() >= _FLUSH_BYTES or len(self._ends) >= _FLUSH_ELEMENTS:
            self._flush()

    def _flush(self) -> None:
        self._keys = [self._keys[number] for number, _ in self._groups]
        super()._flush()

    def _heads(self, counts: Any) -> list[bytes]:
        windows = {window: self._encode_window(window) for window in self._by_window}
        return [
            window_header(windows[window], time) + varint(count)
            for (_, window), time, count in zip(self._groups, self._times, counts.tolist(), strict=True)
        ]


class WindowsWrite(WindowedWrite):
    """The same in streaming: a row for each bucket and window, whose key is the window, with all keys and runs in it.

    So what waits for its window lies in state as it came, and is not looked at before the window fires.
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
    """The same with runs of whole elements, each in one window."""

    def __init__(self, *args: Any, kv_coder: Any, windowing: Any, buckets: int, encode: Any, opaque: bool) -> None:
        """Args: `encode` of whole elements; `opaque`: their values are encoded values without keys."""
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
        if self._stream.size() >= _FLUSH_BYTES or len(self._ends) >= _FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: Any) -> None:  # type: ignore[override]
        return None


class WholeWrite(RunWrite):
    """Whole elements by key: for a DoFn with state or timers, and, without the key, for a triggered GroupByKey."""

    def __init__(self, *args: Any, kv_coder: Any, coder: Any, only_value: bool, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = coder.get_impl().encode_to_stream
        self._only_value = only_value

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        self._numbers.append(self._number(key))
        self._encode(element.with_value(value) if self._only_value else element, self._stream, True)
        self._ends.append(self._stream.size())
        if self._stream.size() >= _FLUSH_BYTES or len(self._ends) >= _FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: Any) -> None:
        return None


def timestamp_combiner(windowing: Any) -> Any:
    """Beam's combiner of the timestamps of a group; None where the window alone decides."""
    if windowing.timestamp_combiner == TimestampCombiner.OUTPUT_AT_EOW:
        return None
    return TimestampCombiner.get_impl(windowing.timestamp_combiner, windowing.windowfn)


def _binary(offsets: Any, data: Any) -> pa.Array:
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])


def _create(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    parameter: bytes,
    consumers: Any,
) -> WriteOperation:
    spec = json.loads(parameter)
    args = (transform.unique_name, transform_id, factory, factory.data_channel_factory.rows, spec["channel"])
    form, buckets = Form(spec["form"]), spec["buckets"]
    coder_of: Callable[[str], Any] = factory.context.coders.get_by_id
    coder = coder_of(spec["coder"])
    if form is Form.PLAIN:
        return PlainWrite(*args, coder=coder)
    if form is Form.DEALT:
        return DealtWrite(*args, coder=coder, buckets=buckets)
    if form is Form.KEYED:
        return WholeWrite(*args, kv_coder=coder.wrapped_value_coder, coder=coder, only_value=False, buckets=buckets)
    grouping, kv_coder_id, windowing_id = spec["group"]
    kv_coder = coder_of(kv_coder_id)
    if form is Form.GROUPED and Grouping(grouping) is Grouping.GLOBAL:
        return GlobalWrite(*args, kv_coder=kv_coder, buckets=buckets)
    windowing = factory.context.windowing_strategies.get_by_id(windowing_id)
    if form is Form.STATEFUL or (form is Form.WINDOWS and Grouping(grouping) is Grouping.TRIGGERED):
        opaque = form is Form.WINDOWS
        if opaque:
            coder = WindowedValueCoder(BytesCoder(), windowing.windowfn.get_window_coder())
        encode = coder.get_impl().encode_to_stream
        return WindowElementsWrite(
            *args, kv_coder=kv_coder, windowing=windowing, buckets=buckets, encode=encode, opaque=opaque
        )
    if form is Form.WINDOWS:
        return WindowsWrite(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
    if Grouping(grouping) is Grouping.WINDOWED:
        return WindowedWrite(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
    values = WindowedValueCoder(kv_coder.value_coder(), windowing.windowfn.get_window_coder())
    return WholeWrite(*args, kv_coder=kv_coder, coder=values, only_value=True, buckets=buckets)


CREATORS: Final[Mapping[str, Callable[..., WriteOperation]]] = MappingProxyType({WRITE_URN: _create})
"""What makes operations, by the URN of their transform; see `beam.patches`."""
