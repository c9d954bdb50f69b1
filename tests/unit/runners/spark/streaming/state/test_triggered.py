"""Panes over many micro-batches, compared with Beam's trigger driver, whose state stays in memory as Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.transforms import trigger, window
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AfterCount, Repeatedly
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.beam.triggers import open_when_merged
from rmqio.runners.spark.streaming.state import NEVER
from tests.helpers.spark.triggered import (
    ACCUMULATING,
    DISCARDING,
    EARLY_AND_LATE,
    MAX,
    MIN,
    SECOND,
    Batches,
    Element,
    Pane,
    assigned,
    pane_of,
    windowing_of,
)

pytestmark = [pytest.mark.slow]


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
            self.driver.trigger_fn.watermark = before
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
