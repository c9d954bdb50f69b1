"""Elements that wait for the end of their window, over many micro-batches, compared with a dict of lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.coders import IterableCoder, StrUtf8Coder, TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.runners.worker.statesampler import StateSampler
from apache_beam.transforms import window
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import TimestampCombiner, WindowFn
from apache_beam.utils.counters import CounterFactory
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.streaming.state import Store
from rmqio.runners.spark.streaming.windows import Windows
from rmqio.runners.spark.worker.state import Spool
from rmqio.runners.spark.worker.writing import WindowsWrite
from tests.helpers.spark.spark_stream import Stream

pytestmark = [pytest.mark.slow]

SECOND = 1_000_000
KV = TupleCoder((StrUtf8Coder(), VarIntCoder()))
Element = tuple[str, int, int]  # key, value, seconds


class Entries(dict[bytes, bytes]):
    """Entries in memory, as they stay between micro-batches."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.pop(key, None)


def written(elements: list[Element], windowing: Windowing) -> list[tuple[bytes, bytes]]:
    """Returns the rows that the stage before the GroupByKey writes."""
    rows: list[tuple[bytes, bytes]] = []
    counters = CounterFactory()
    factory = SimpleNamespace(counter_factory=counters, state_sampler=StateSampler("", counters))
    writer = SimpleNamespace(write=lambda channel, bucket, key, value: rows.append((key, value)))
    operation = WindowsWrite("write", "write", factory, writer, 0, kv_coder=KV, windowing=windowing, buckets=1)
    for key, value, seconds in elements:
        time = Timestamp(seconds)
        operation.process(WindowedValue((key, value), time, windowing.windowfn.assign(context(time))))
    operation.finish()
    return rows


def context(time: Timestamp) -> Any:
    return WindowFn.AssignContext(time)


class Batches:
    """The micro-batches of one GroupByKey. Each one has a new store over the same entries."""

    def __init__(self, windowing: Windowing, stage: int = 4, entries: Entries | None = None) -> None:
        self.windowing = windowing
        self.stage = stage
        self.entries = Entries() if entries is None else entries
        self.watermark = -(1 << 60)
        self.late = 0
        values = TupleCoder((StrUtf8Coder(), IterableCoder(VarIntCoder())))
        self.coder = WindowedValueCoder(values, windowing.windowfn.get_window_coder()).get_impl()

    def run(self, elements: list[Element], watermark: int) -> list[WindowedValue]:
        store = Store(self.entries)
        windows = Windows(store, self.stage, self.windowing)
        for name, packed in written(elements, self.windowing):
            self.late += windows.add(name, packed, self.watermark)
        self.watermark = watermark
        found = [self.coder.decode_nested(element) for element in windows.fire(watermark, Spool())]
        windows.flush()
        store.flush()
        assert windows.is_empty == Windows(Store(self.entries), self.stage, self.windowing).is_empty
        return found


ELEMENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99), st.integers(0, 60)), max_size=10)
WATERMARK = st.integers(-5 * SECOND, 75 * SECOND) | st.sampled_from([10 * SECOND - 1, 10 * SECOND, 20 * SECOND])


@pytest.mark.parametrize("combiner", ["OUTPUT_AT_EOW", "OUTPUT_AT_EARLIEST", "OUTPUT_AT_LATEST"])
@pytest.mark.parametrize(
    "windowfn",
    [window.FixedWindows(10), window.SlidingWindows(10, 5), window.GlobalWindows()],
    ids=["fixed", "sliding", "global"],
)
@settings(max_examples=30)
@given(batches=st.lists(st.tuples(ELEMENTS, WATERMARK), max_size=6))
def test_each_window_fires_once_with_what_came_in_time(
    windowfn: Any, combiner: str, batches: list[tuple[list[Element], int]]
) -> None:
    windowing = Windowing(windowfn, timestamp_combiner=getattr(TimestampCombiner, combiner))
    runs = Batches(windowing)
    waiting: dict[tuple[Any, str], list[tuple[int, int]]] = {}
    late, before = 0, -(1 << 60)
    for elements, end in [*batches, ([], int(MAX_TIMESTAMP.micros))]:
        watermark = max(end, before)
        for key, value, seconds in elements:
            for each in windowfn.assign(context(Timestamp(seconds))):
                if each.max_timestamp().micros < before:
                    late += 1
                else:
                    waiting.setdefault((each, key), []).append((value, seconds * SECOND))
        found = runs.run(elements, watermark)
        due = [each for each in waiting if each[0].max_timestamp().micros < watermark]
        expected = {}
        for each in due:
            values = waiting.pop(each)
            times = [time for _, time in values]
            last = int(each[0].max_timestamp().micros) // 1000 * 1000  # Beam's elements have milliseconds
            stamp = {"OUTPUT_AT_EOW": last, "OUTPUT_AT_EARLIEST": min(times), "OUTPUT_AT_LATEST": max(times)}
            expected[each] = (sorted(value for value, _ in values), stamp[combiner])
        assert len(found) == len(expected)
        assert {
            (each.windows[0], each.value[0]): (sorted(each.value[1]), int(each.timestamp.micros)) for each in found
        } == expected
        ends = [each.windows[0].max_timestamp() for each in found]
        assert ends == sorted(ends), "windows fire in their order"
        assert runs.late == late
        before = watermark
    assert runs.entries == {}, "nothing is kept of windows that are over"


def test_a_window_is_over_when_the_watermark_is_behind_its_last_microsecond() -> None:
    runs = Batches(Windowing(window.FixedWindows(10)))
    assert runs.run([("a", 1, 3)], 10 * SECOND - 1) == []
    assert runs.run([("a", 2, 9)], 10 * SECOND - 1) == []
    (fired,) = runs.run([("a", 3, 0), ("b", 4, 12)], 10 * SECOND)
    assert (fired.value[0], list(fired.value[1])) == ("a", [1, 2, 3]), "in the order in which they came"
    assert fired.timestamp == Timestamp(micros=10 * SECOND - 1000), "Beam's elements have milliseconds"
    assert fired.pane_info == PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
    assert runs.late == 0
    assert runs.run([("a", 5, 3), ("c", 6, 4), ("c", 7, 4), ("b", 8, 13)], 10 * SECOND) == []
    assert runs.late == 3
    (fired,) = runs.run([], 20 * SECOND)
    assert (fired.value[0], list(fired.value[1])) == ("b", [4, 8])


def test_late_elements_are_counted_in_segments_of_any_size() -> None:
    runs = Batches(Windowing(window.FixedWindows(10)))
    runs.run([], 50 * SECOND)
    runs.run([("a", n, 3) for n in range(300)] + [("b", n, 13) for n in range(20_000)], 50 * SECOND)
    assert (runs.late, runs.entries) == (20_300, {})


def test_a_segment_is_not_read_before_its_window_fires() -> None:
    asked: list[bytes] = []

    class Watched(Entries):
        def get(self, key: bytes) -> bytes | None:  # type: ignore[override]
            asked.append(key)
            return super().get(key)

    runs = Batches(Windowing(window.FixedWindows(10)), entries=Watched())
    for number in range(5):
        runs.run([("a", number, 3)], 0)
    assert len(set(asked)) == 1, "the index alone"
    assert len(runs.entries) == 6, "a segment for each micro-batch, and the index"
    (fired,) = runs.run([], 10 * SECOND)
    assert list(fired.value[1]) == [0, 1, 2, 3, 4]


def test_an_element_in_no_window_leaves_nothing_to_the_next_micro_batch() -> None:
    """Its key already has a number, but no element."""
    grouped = (
        beam.WindowInto(window.SlidingWindows(2, 5)) | beam.GroupByKey() | beam.MapTuple(lambda k, v: (k, sorted(v)))
    )
    stream = Stream(grouped)
    assert stream.values([("a", "in a gap", 3)], 0) == []
    assert stream.values([("b", "b", 5), ("a", "a", 5)], 0) == []
    assert stream.values([], 100) == [("a", ["a"]), ("b", ["b"])]


def test_what_a_filter_leaves_out_holds_the_watermark_for_as_long_as_an_idle_queue() -> None:
    counted = beam.WindowInto(window.FixedWindows(10)) | beam.combiners.Count.PerKey()
    stream = Stream(counted)
    assert stream.values([("a", 1, 3)], None, clock=100, silent=(90, 10), learned=3) == []
    assert stream.values([], None, clock=109, silent=(99, 10)) == [], "there was something nine seconds ago"
    assert stream.values([], None, clock=110, silent=(100, 10)) == [("a", 1)]
    assert stream.values([("a", 1, 120)], None, clock=111, silent=(101, 10), learned=120) == []
    assert stream.values([], None, clock=120, silent=(110, 10)) == []
    assert stream.values([], None, clock=141, silent=(131, 10)) == [("a", 1)]


def test_stages_have_windows_of_their_own() -> None:
    entries = Entries()
    first = Batches(Windowing(window.FixedWindows(10)), stage=1, entries=entries)
    second = Batches(Windowing(window.FixedWindows(10)), stage=2, entries=entries)
    first.run([("a", 1, 3)], 0)
    second.run([("b", 2, 3)], 0)
    assert [list(each.value[1]) for each in first.run([], 10 * SECOND)] == [[1]]
    assert [list(each.value[1]) for each in second.run([], 10 * SECOND)] == [[2]]
