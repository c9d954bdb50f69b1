"""Panes over many micro-batches, compared with Beam's trigger driver, whose state stays in memory as Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import pyarrow as pa
from apache_beam.coders import BytesCoder, Coder, IterableCoder, StrUtf8Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.transforms import trigger, window
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterProcessingTime, AfterWatermark, Repeatedly
from apache_beam.transforms.window import TimestampCombiner, WindowFn
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.beam.triggers import open_when_merged
from rmqio.runners.spark.streaming.state.keys import NEVER
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.streaming.state.triggered import Triggered
from rmqio.runners.spark.worker.shuffling.packing import pack

pytestmark = [pytest.mark.slow]

SECOND = 1_000_000
MIN, MAX = int(MIN_TIMESTAMP.micros), int(MAX_TIMESTAMP.micros)
DISCARDING, ACCUMULATING = AccumulationMode.DISCARDING, AccumulationMode.ACCUMULATING
EARLY, ON_TIME, LATE = PaneInfoTiming.EARLY, PaneInfoTiming.ON_TIME, PaneInfoTiming.LATE
Element = tuple[str, bytes, int]  # key, value, seconds


def windowing_of(windowfn: Any, triggerfn: Any, mode: int = DISCARDING, lateness: int = 0, **more: Any) -> Windowing:
    return Windowing(windowfn, triggerfn, mode, allowed_lateness=lateness, **more)


class Entries(dict[bytes, bytes]):
    """Entries in memory, as they stay between micro-batches."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.pop(key, None)


def assigned(elements: list[Element], windowfn: Any) -> Iterator[tuple[str, WindowedValue]]:
    for key, value, seconds in elements:
        time = Timestamp(seconds)
        for each in windowfn.assign(WindowFn.AssignContext(time)):
            yield key, WindowedValue(value, time, (each,))


Pane = tuple[str, Any, list[bytes], int, Any]  # key, window, values, microseconds, pane info


class Batches:
    """The micro-batches of one GroupByKey. Each one has a new store over the same entries."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self.entries = Entries()
        self.watermark = MIN
        self.late = 0
        self.hold = NEVER
        self.is_pending = False
        self.window_coder = windowing.windowfn.get_window_coder()
        values = TupleCoder((StrUtf8Coder(), IterableCoder(BytesCoder())))
        self.output = WindowedValueCoder(values, self.window_coder).get_impl()

    def rows(self, elements: list[Element]) -> Iterator[tuple[bytes, bytes]]:
        """Yields rows as `WindowElementsWrite` writes them: by window, with the runs of each key."""
        impl = WindowedValueCoder(BytesCoder(), self.window_coder).get_impl()
        found: dict[bytes, dict[bytes, Any]] = {}
        for key, element in assigned(elements, self.windowing.windowfn):
            keys = found.setdefault(self.window_coder.encode(element.windows[0]), {})
            out = keys.setdefault(StrUtf8Coder().get_impl().encode_nested(key), create_OutputStream())
            value = BytesCoder().get_impl().encode_nested(element.value)
            impl.encode_to_stream(element.with_value(value), out, True)
        for name, keys in found.items():
            runs = [out.get() for out in keys.values()]
            yield name, pack(pa.array(list(keys), pa.binary()), pa.array(runs, pa.binary()))

    def kept(self) -> list[bytes]:
        """Returns the names of the entries, without the one that counts keys."""
        return [name for name in self.entries if name[:1] != b"k"]

    def run(self, elements: list[Element], watermark: int, clock: int = 0) -> list[Pane]:
        store = Store(self.entries)
        triggered = Triggered(store, 5, self.windowing)
        for name, packed in self.rows(elements):
            self.late += triggered.add(name, packed, self.watermark)
        encoded = list(triggered.fire(self.watermark, watermark, clock))
        self.watermark = watermark
        triggered.flush(watermark)
        self.hold, self.is_pending = triggered.hold(), triggered.is_pending
        store.flush()
        assert not any(mark in value for value in self.entries.values() for mark in (b"\x80\x04", b"pickle"))
        decoded = map(self.output.decode_nested, encoded)
        return [pane_of(each.value[0], each.with_value(each.value[1])) for each in decoded]


def pane_of(key: str, pane: WindowedValue) -> Pane:
    # the values of a pane have no order, and Beam's elements have milliseconds
    return key, pane.windows[0], sorted(pane.value), int(pane.timestamp.micros) // 1000 * 1000, pane.pane_info


class InMemory:
    """Does the same with Beam's driver and its own state."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self.clock = trigger_clock()
        self.driver = trigger.GeneralTriggerDriver(windowing, self.clock)
        self.driver.trigger_fn = open_when_merged(self.driver.trigger_fn)
        self.states: dict[str, Any] = {}
        self.watermark = MIN
        self.late = 0

    def run(self, elements: list[Element], watermark: int, clock: int = 0) -> list[Pane]:
        self.clock.seconds = clock / SECOND
        lateness = int(self.windowing.allowed_lateness.micros)
        given: dict[str, list[WindowedValue]] = {}
        for key, element in assigned(elements, self.windowing.windowfn):
            if element.windows[0].max_timestamp().micros + lateness < self.watermark:
                self.late += 1
            else:
                given.setdefault(key, []).append(element)
                self.states.setdefault(key, trigger.InMemoryUnmergedState())
        before, now = Timestamp(micros=self.watermark), Timestamp(micros=watermark)
        found = []
        for key, state in self.states.items():
            for pane in self.driver.process_elements(state, given.get(key, []), before, before):
                found.append(pane_of(key, pane))
            while due := state.get_timers(clear=True, watermark=now, processing_time=Timestamp(micros=clock))[0]:
                for window_id, (name, domain, time, _) in sorted(due, key=lambda each: each[1][2]):
                    if any(window_id in ids for ids in state.global_state["window_ids"].values()):
                        for pane in self.driver.process_timer(window_id, name, domain, time, state, now):
                            found.append(pane_of(key, pane))
            for each, ids in list(state.global_state.get("window_ids", {}).items()):
                if each.max_timestamp().micros + lateness < watermark:
                    for window_id in ids:
                        state.state.pop(window_id, None)
                        state.timers.pop(window_id, None)
                    del state.global_state["window_ids"][each]
        self.watermark = watermark
        return found


class trigger_clock:
    seconds = 0.0

    def time(self) -> float:
        return self.seconds


def ordered(panes: list[Pane]) -> list[Pane]:
    return sorted(panes, key=lambda pane: (pane[0], repr(pane[1]), repr(pane[4])))


EARLY_AND_LATE = AfterWatermark(early=AfterCount(2), late=AfterCount(1))
WINDOWINGS: dict[str, dict[str, Any]] = {
    "early and late": {"windowfn": window.FixedWindows(10), "triggerfn": EARLY_AND_LATE, "lateness": 20},
    "each, or a thousand": {
        "windowfn": window.FixedWindows(10),
        "triggerfn": trigger.OrFinally(Repeatedly(AfterCount(1)), AfterCount(1000)),
        "lateness": 20,
    },
    "default with lateness": {
        "windowfn": window.SlidingWindows(10, 5),
        "triggerfn": trigger.DefaultTrigger(),
        "lateness": 7,
    },
    "sessions": {"windowfn": window.Sessions(6), "triggerfn": trigger.DefaultTrigger()},
    "sessions, early and late": {"windowfn": window.Sessions(6), "triggerfn": EARLY_AND_LATE, "lateness": 15},
    "earliest": {
        "windowfn": window.FixedWindows(10),
        "triggerfn": EARLY_AND_LATE,
        "timestamp_combiner": TimestampCombiner.OUTPUT_AT_EARLIEST,
    },
    "latest in sessions": {
        "windowfn": window.Sessions(6),
        "triggerfn": EARLY_AND_LATE,
        "timestamp_combiner": TimestampCombiner.OUTPUT_AT_LATEST,
    },
    "count in global": {"windowfn": window.GlobalWindows(), "triggerfn": Repeatedly(AfterCount(1))},
    "each": {
        "windowfn": window.FixedWindows(10),
        "triggerfn": trigger.AfterEach(AfterCount(2), AfterCount(1), Repeatedly(AfterCount(1))),
        "lateness": 5,
    },
}
ELEMENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=8)
BATCHES = st.lists(st.tuples(ELEMENTS, st.integers(-5, 70).map(lambda seconds: seconds * SECOND)), max_size=7)


@pytest.mark.parametrize("mode", [DISCARDING, ACCUMULATING], ids=["discarding", "accumulating"])
@pytest.mark.parametrize("name", WINDOWINGS)
@settings(max_examples=40)
@given(batches=BATCHES)
def test_panes_are_those_of_a_driver_whose_state_never_leaves_memory(
    name: str, mode: int, batches: list[tuple[list[tuple[str, int]], int]]
) -> None:
    windowing = windowing_of(mode=mode, **WINDOWINGS[name])
    ours, reference = Batches(windowing), InMemory(windowing)
    number, watermark = 0, MIN
    for timed, end in [*batches, ([], MAX)]:
        elements = []
        for key, seconds in timed:
            elements.append((key, b"%d" % number, seconds))
            number += 1
        watermark = max(watermark, end)
        expected = reference.run(elements, watermark)
        found = ours.run(elements, watermark)
        assert ours.late == reference.late
        # a window that closes emits what its trigger has not fired; Beam's driver alone does not
        assert ordered([pane for pane in found if pane in expected]) == ordered(expected)
        closing = [pane for pane in found if pane not in expected]
        if name not in ("default with lateness", "each"):
            assert closing == []
        assert all(pane[4].is_last and pane[1].max_timestamp().micros < watermark for pane in closing)
        hold = min(
            (hold for state in reference.states.values() for hold in holds(state, windowing, watermark)), default=NEVER
        )
        assert ours.hold == hold if hold <= watermark else ours.hold > watermark
    assert ours.kept() == [], "nothing is kept of windows that are over"
    assert (ours.hold, ours.is_pending) == (NEVER, False)


def holds(state: Any, windowing: Any, watermark: int) -> Iterator[int]:
    """Yields the times at which a key's windows that are not over hold the output watermark."""
    for of, ids in state.global_state.get("window_ids", {}).items():
        if of.max_timestamp().micros + windowing.allowed_lateness.micros >= watermark:
            for each in ids:
                yield from (int(time.micros) - 1 for time in state.state.get(each, {}).get("watermark", ()))


@pytest.mark.parametrize("name", WINDOWINGS)
@settings(max_examples=30)
@given(batches=BATCHES)
def test_discarding_panes_hold_each_element_once(name: str, batches: list[tuple[list[tuple[str, int]], int]]) -> None:
    runs = Batches(windowing_of(mode=DISCARDING, **WINDOWINGS[name]))
    given, found, watermark = 0, list[bytes](), MIN
    for timed, end in [*batches, ([], MAX)]:
        elements = [(key, b"%d" % (given + at), seconds) for at, (key, seconds) in enumerate(timed)]
        given += len(elements)
        watermark = max(watermark, end)
        for pane in runs.run(elements, watermark):
            found += pane[2]
    windows = 2 if name == "default with lateness" else 1  # the number of windows of an element
    assert len(found) + runs.late == windows * given
    assert all(found.count(value) <= windows for value in found)


# ---- by hand --------------------------------------------------------------------------------------------------------


def shown(panes: list[Pane]) -> list[tuple[list[bytes], Any, int, bool]]:
    return [(values, info.timing, info.index, info.is_last) for _, _, values, _, info in panes]


@pytest.mark.parametrize("mode", [DISCARDING, ACCUMULATING], ids=["discarding", "accumulating"])
def test_early_on_time_and_late_panes(mode: int) -> None:
    runs = Batches(windowing_of(window.FixedWindows(10), EARLY_AND_LATE, mode, 20))
    more = [b"1", b"2"] if mode == ACCUMULATING else []
    late = [*more, b"3"] if mode == ACCUMULATING else []
    assert runs.run([("a", b"1", 1)], 0) == []
    assert shown(runs.run([("a", b"2", 9)], 0)) == [([b"1", b"2"], EARLY, 0, False)]
    assert runs.run([("a", b"3", 5)], 5 * SECOND) == []
    assert shown(runs.run([], 10 * SECOND)) == [([*more, b"3"], ON_TIME, 1, False)]
    assert shown(runs.run([("a", b"4", 5)], 29 * SECOND)) == [([*late, b"4"], LATE, 2, False)]
    assert runs.kept()
    assert runs.run([], 30 * SECOND) == []
    assert runs.kept() == []
    assert runs.run([("a", b"5", 5)], 30 * SECOND) == []
    assert (runs.late, runs.kept()) == (1, [])


def test_sessions_merge_across_micro_batches() -> None:
    runs = Batches(windowing_of(window.Sessions(5), trigger.DefaultTrigger(), ACCUMULATING))
    assert runs.run([("a", b"1", 0), ("b", b"2", 0)], 1 * SECOND) == []
    assert runs.run([("a", b"3", 8)], 2 * SECOND) == []
    assert runs.run([("a", b"4", 4)], 3 * SECOND) == [], "which joins the two"
    (pane,) = runs.run([], 8 * SECOND)
    assert (pane[0], pane[2]) == ("b", [b"2"])
    (pane,) = runs.run([], 13 * SECOND)
    assert (pane[0], pane[1], sorted(pane[2])) == ("a", window.IntervalWindow(0, 13), [b"1", b"3", b"4"])
    assert runs.kept() == []


@pytest.mark.parametrize("mode", [DISCARDING, ACCUMULATING], ids=["discarding", "accumulating"])
def test_a_late_event_that_joins_a_fired_session_to_an_open_one_gives_a_pane_on_time(mode: int) -> None:
    late = trigger.AfterWatermark(late=AfterCount(1))
    runs = Batches(windowing_of(window.Sessions(10), late, mode, 100))
    runs.run([("a", b"1", 1)], 0)
    assert shown(runs.run([("a", b"2", 18)], 15 * SECOND)) == [([b"1"], ON_TIME, 0, False)]
    assert runs.run([("a", b"late", 9)], 16 * SECOND) == [], "the joined session is open until 28"
    (pane,) = runs.run([], 28 * SECOND)
    assert pane[1] == window.IntervalWindow(1, 28)
    before = [b"1"] if mode == ACCUMULATING else []
    assert shown([pane]) == [([*before, b"2", b"late"], ON_TIME, 0, False)]
    again = [*before, b"2", b"late"] if mode == ACCUMULATING else []
    assert shown(runs.run([("a", b"4", 17)], 30 * SECOND)) == [(sorted([*again, b"4"]), LATE, 1, False)]


def test_an_earliest_timestamp_holds_the_output_watermark_until_its_pane() -> None:
    earliest = TimestampCombiner.OUTPUT_AT_EARLIEST
    runs = Batches(windowing_of(window.FixedWindows(10), trigger.DefaultTrigger(), timestamp_combiner=earliest))
    runs.run([("a", b"1", 7), ("b", b"2", 3)], 0)
    assert runs.hold > 0, "the watermark has not come to it"
    runs.run([("c", b"3", 12)], 9 * SECOND)
    assert runs.hold == 3 * SECOND - 1
    panes = runs.run([], 10 * SECOND)
    assert {pane[0]: pane[3] for pane in panes} == {"a": 7 * SECOND, "b": 3 * SECOND}
    assert runs.hold > 10 * SECOND
    runs.run([], 15 * SECOND)
    assert runs.hold == 12 * SECOND - 1, "what is left, a moment before it"
    assert [pane[3] for pane in runs.run([], 20 * SECOND)] == [12 * SECOND]
    assert runs.hold == NEVER


def test_a_pane_that_has_fired_holds_nothing_any_more() -> None:
    earliest = TimestampCombiner.OUTPUT_AT_EARLIEST
    windowing = windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(2)), timestamp_combiner=earliest)
    runs = Batches(windowing)
    assert runs.run([("a", b"1", 7)], 9 * SECOND) == []
    assert runs.hold == 7 * SECOND - 1
    assert [pane[3] for pane in runs.run([("a", b"2", 8)], 10 * SECOND)] == [7 * SECOND]
    assert runs.hold == NEVER


def test_processing_time_passes_with_the_clock_alone() -> None:
    after = Repeatedly(AfterProcessingTime(5))
    runs = Batches(windowing_of(window.GlobalWindows(), after))
    assert runs.run([("a", b"1", 1)], 0, 100 * SECOND) == []
    assert runs.is_pending
    assert runs.run([("a", b"2", 2)], 0, 103 * SECOND) == []
    found = runs.run([], 0, 108 * SECOND)
    assert shown(found) == [([b"1", b"2"], EARLY, 0, False)], "the watermark has not come to the window's end"
    assert (runs.is_pending, runs.run([], 0, 200 * SECOND)) == (False, [])
    assert runs.run([("a", b"3", 2)], 0, 201 * SECOND) == []
    assert shown(runs.run([], MAX, 202 * SECOND)) == [([b"3"], ON_TIME, 1, True)], "the window closes first"
    assert (runs.kept(), runs.hold, runs.is_pending) == ([], NEVER, False)


def test_the_clock_says_when_a_pane_comes_and_the_watermark_whether_it_is_early() -> None:
    runs = Batches(windowing_of(window.FixedWindows(10), Repeatedly(AfterProcessingTime(2)), lateness=100))
    runs.run([("a", b"1", 1)], 0, 1_000 * SECOND)
    assert shown(runs.run([], 5 * SECOND, 1_002 * SECOND)) == [([b"1"], EARLY, 0, False)]
    runs.run([("a", b"2", 1)], 50 * SECOND, 1_003 * SECOND)
    assert [pane[4].timing for pane in runs.run([], 51 * SECOND, 1_005 * SECOND)] == [LATE]


def test_counts_in_the_global_window_go_on_over_micro_batches_by_key() -> None:
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(3))))
    keys = [f"key-{number}" for number in range(200)]
    for turn in range(7):
        panes = runs.run([(key, b"%s %d" % (key.encode(), turn), turn) for key in keys], turn * SECOND)
        expected = [[b"%s %d" % (key.encode(), at) for at in range(turn - 2, turn + 1)] for key in keys]
        assert sorted(pane[2] for pane in panes) == (sorted(expected) if turn % 3 == 2 else [])
        assert {pane[4].index for pane in panes} <= {turn // 3}
    left = runs.run([], MAX)
    assert sorted((pane[0], pane[2]) for pane in left) == sorted((key, [b"%s 6" % key.encode()]) for key in keys)
    assert runs.kept() == []


def test_the_end_of_time_ends_a_window_whatever_its_lateness() -> None:
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(3)), lateness=10 * 86_400))
    assert runs.run([("a", b"1", 1)], 0) == []
    assert shown(runs.run([], MAX)) == [([b"1"], ON_TIME, 0, True)]
    assert (runs.kept(), runs.hold) == ([], NEVER)


def test_firings_without_end_in_the_global_window_leave_no_entries_behind() -> None:
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(2))))
    sizes = []
    for number in range(60):
        # every second one fires, so that some element always waits from one micro-batch to the next
        assert len(runs.run([("a", b"%d" % number, number)], number)) == number % 2
        sizes.append((len(runs.entries), sum(map(len, runs.entries.values()))))
    assert max(sizes[40:]) <= max(sizes[:20]), "no more after sixty than after twenty"
    assert runs.hold == NEVER, "the end of the global window holds nothing back"


def test_the_number_of_a_pane_costs_the_same_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam's state in memory keeps it as a list of ones."""
    runs = Batches(windowing_of(window.GlobalWindows(), Repeatedly(AfterCount(1))))
    loaded, sizes = Triggered._loaded, []

    def spied(self: Triggered, data: bytes) -> Any:
        state = loaded(self, data)
        sizes.append(sum(len(values) for tags in state.state.values() for values in tags.values()))
        return state

    monkeypatch.setattr(Triggered, "_loaded", spied)
    for number in range(300):
        assert len(runs.run([("a", b"", number)], number)) == 1
    assert max(sizes) <= 10


class Text(Coder):
    def encode(self, value: Any) -> bytes:
        return f"{value.start.micros}/{value.end.micros}".encode()

    def decode(self, encoded: bytes) -> window.IntervalWindow:
        start, end = map(int, encoded.split(b"/"))
        return window.IntervalWindow(Timestamp(micros=start), Timestamp(micros=end))

    def is_deterministic(self) -> bool:
        return True


class Labelled(window.FixedWindows):
    """Windows whose coder writes a length if it is nested, as the coder of a user's own windows may do."""

    def get_window_coder(self) -> Any:
        return Text()


def test_windows_of_any_coder() -> None:
    runs = Batches(windowing_of(Labelled(10), EARLY_AND_LATE, lateness=5))
    store = Store(runs.entries)
    triggered = Triggered(store, 5, runs.windowing)
    for name, packed in runs.rows([("a", b"1", 1), ("a", b"2", 2)]):
        assert triggered.add(name, packed, MIN) == 0
    (pane,) = [runs.output.decode_nested(each) for each in triggered.fire(MIN, 0, 0)]
    assert (pane.value[0], list(pane.value[1]), pane.windows) == ("a", [b"1", b"2"], (window.IntervalWindow(0, 10),))
