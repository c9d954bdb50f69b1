"""`BoundedGroupIntoBatches`: batches of the values of a key, bounded by number, bytes and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder, TupleCoder, VarIntCoder, registry
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.typehints import List, Tuple
from apache_beam.utils.timestamp import Timestamp

from rmqio.errors import LocalError
from rmqio.skew.beam import ReshufflePerKey
from rmqio.transforms.parts import is_in_process


class BoundedGroupIntoBatches(beam.PTransform):
    """Groups the values of each key and window into lists, which it emits as soon as one of the limits is reached.

        batches = pairs | BoundedGroupIntoBatches(500, max_bytes=1 << 20, max_wait_ms=2_000)

    Unlike Beam's `GroupIntoBatches` it knows how large values are: the runner's state of a key and window is never more
    than a batch. It emits (key, list of values).

    Nothing is lost: what is left of a key goes out at the end of its window, and thus when a pipeline ends or is
    drained; late values go out by themselves. In the global window of a stream, that is the end of the stream: give
    `max_wait_ms`.

    Order: values of a key are in the order in which the runner hands them over, within a batch and from batch to batch.
    Runners keep it from one step to the next, and not through other shuffles.

    A batch that is full has the time of its last value; one at the end of a window, the window's last moment.

    Args:
      batch_size: values in a batch.
      max_bytes: encoded bytes in a batch, by the coder of the values. A value that is larger is a batch alone.
      max_wait_ms: how long the first value of a batch waits for others, by the clock. None: until the window ends. In a
        pipeline that ends, runners do not wait.

    The Direct runner refuses it after a read without end. Raises `LocalError` when it is built or applied.
    """

    def __init__(self, batch_size: int, *, max_bytes: int | None = None, max_wait_ms: int | None = None) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("max_bytes", max_bytes), ("max_wait_ms", max_wait_ms)):
            is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not is_number and (value is not None or name == "batch_size"):
                raise LocalError(f"{name} is {value!r}; it must be a whole number of at least 1")
        self._batch_size, self._max_bytes, self._max_wait_ms = batch_size, max_bytes, max_wait_ms

    def expand(self, pairs: Any) -> Any:
        types = getattr(pairs.element_type, "tuple_types", (Any, Any))
        if len(types) != 2:
            raise LocalError(
                f"BoundedGroupIntoBatches needs pairs of key and value, and elements are {pairs.element_type}"
            )
        if pairs.windowing.windowfn.is_merging():
            raise LocalError(
                f"BoundedGroupIntoBatches in {type(pairs.windowing.windowfn).__name__}: windows that merge have no "
                "state by key; use fixed windows before it"
            )
        if not pairs.is_bounded and is_in_process(pairs.pipeline):
            raise LocalError(
                "BoundedGroupIntoBatches after a read without end: the Direct runner fires its timers immediately. "
                "Give the read a stop (--stop latest), or use --runner=SparkRunner --streaming or --runner=FlinkRunner"
            )
        key_type, value_type = types
        limits = registry.get_coder(value_type), self._batch_size, self._max_bytes
        fn = _BatchFn(*limits) if self._max_wait_ms is None else _TimedBatchFn(*limits, self._max_wait_ms)
        typed = pairs | "Pairs" >> beam.Map(_same).with_output_types(Tuple[key_type, value_type])
        if is_in_process(pairs.pipeline):
            # If it fuses two DoFns with timers, it drops what those of one of them emit, also of Beam's own transform.
            typed = typed | "Apart" >> ReshufflePerKey().with_output_types(Tuple[key_type, value_type])
        return typed | "Batch" >> beam.ParDo(fn).with_output_types(Tuple[key_type, List[value_type]])

    def display_data(self) -> dict[str, Any]:
        shown = {
            "batch_size": self._batch_size,
            "max_bytes": self._max_bytes,
            "max_wait_ms": self._max_wait_ms,
        }
        return {name: DisplayDataItem(value).drop_if_none() for name, value in shown.items()}


def _same(pair: Any) -> Any:
    return pair


class _BatchFn(beam.DoFn):
    """Values wait as bytes, so that their size is known without encoding them twice."""

    VALUES: Final = BagStateSpec("values", BytesCoder())
    HELD: Final = ReadModifyWriteStateSpec("held", TupleCoder((VarIntCoder(), VarIntCoder())))
    END: Final = TimerSpec("end", TimeDomain.WATERMARK)

    def __init__(self, coder: Coder, batch_size: int, max_bytes: int | None) -> None:
        self._coder = coder
        self._batch_size = batch_size
        self._max_bytes = max_bytes

    def process(
        self,
        element: tuple[Any, Any],
        window: Any = beam.DoFn.WindowParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        held: Any = beam.DoFn.StateParam(HELD),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        return self._add(element, values, held, lambda: end.set(window.max_timestamp()))

    def _add(self, element: tuple[Any, Any], values: Any, held: Any, begin: Callable[[], None]) -> Iterator[Any]:
        key, value = element
        encoded = self._coder.encode(value)
        most = self._max_bytes
        count, size = held.read() or (0, 0)
        if count and most is not None and size + len(encoded) > most:
            yield key, self._taken(values, held)
            count, size = 0, 0
        if not count:
            begin()
        values.add(encoded)
        count, size = count + 1, size + len(encoded)
        if count >= self._batch_size or (most is not None and size >= most):
            yield key, self._taken(values, held)
        else:
            held.write((count, size))

    @on_timer(END)
    def at_the_end(
        self,
        key: Any = beam.DoFn.KeyParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        held: Any = beam.DoFn.StateParam(HELD),
    ) -> Iterator[Any]:
        return self._rest(key, values, held)

    def _rest(self, key: Any, values: Any, held: Any) -> Iterator[Any]:
        batch = self._taken(values, held)
        if batch:
            yield key, batch

    def _taken(self, values: Any, held: Any) -> list[Any]:
        batch = [self._coder.decode(each) for each in values.read()]
        values.clear()
        held.clear()
        return batch


class _TimedBatchFn(_BatchFn):
    """One that does not wait longer than it may. Separate, because not all runners have timers by the clock."""

    WAIT: Final = TimerSpec("wait", TimeDomain.REAL_TIME)

    def __init__(self, coder: Coder, batch_size: int, max_bytes: int | None, max_wait_ms: int) -> None:
        super().__init__(coder, batch_size, max_bytes)
        self._max_wait_ms = max_wait_ms

    def process(
        self,
        element: tuple[Any, Any],
        window: Any = beam.DoFn.WindowParam,
        values: Any = beam.DoFn.StateParam(_BatchFn.VALUES),
        held: Any = beam.DoFn.StateParam(_BatchFn.HELD),
        end: Any = beam.DoFn.TimerParam(_BatchFn.END),
        wait: Any = beam.DoFn.TimerParam(WAIT),
    ) -> Iterator[Any]:
        def begin() -> None:
            end.set(window.max_timestamp())
            wait.set(Timestamp(micros=(int(time.time() * 1000) + self._max_wait_ms) * 1000))

        return self._add(element, values, held, begin)

    @on_timer(WAIT)
    def after_the_wait(
        self,
        key: Any = beam.DoFn.KeyParam,
        values: Any = beam.DoFn.StateParam(_BatchFn.VALUES),
        held: Any = beam.DoFn.StateParam(_BatchFn.HELD),
    ) -> Iterator[Any]:
        return self._rest(key, values, held)
