"""Sessions, sliding windows and batches of a live topic, with data out of order, late and too late, and a reference.

The reference is computed from the messages alone. The pane in which an element arrives depends on how messages are cut
into bundles. The total contents of a window's panes, and which panes are on time or late, do not.
"""

from __future__ import annotations

import collections
import json
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.transforms import trigger, window
from apache_beam.utils.windowed_value import PaneInfoTiming

from rmqio import Message, ReadFromRocketMQ, ReadOptions, Record, StartFrom, WriteToRocketMQ
from rmqio.model import MessageQueue
from rmqio.runners import options
from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.jobserver import SERVERS
from rmqio.skew import BoundedGroupIntoBatches
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.pipelines.unended import goes_on
from tests.helpers.waiting import until, until_found

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

BEGIN = 1_700_000_000
GAP, SIZE, PERIOD = 10, 20, 10
DISORDER, LATENESS = 5, 100
BATCH = "batch"
WINDOWS = {"sessions": window.Sessions(GAP), "sliding": window.SlidingWindows(SIZE, PERIOD)}
MODES = {
    "accumulating": trigger.AccumulationMode.ACCUMULATING,
    "discarding": trigger.AccumulationMode.DISCARDING,
}
EARLY, ON_TIME, LATE = PaneInfoTiming.EARLY, PaneInfoTiming.ON_TIME, PaneInfoTiming.LATE


class Sent(NamedTuple):
    number: int
    key: str
    second: int


class Pane(NamedTuple):
    kind: str
    key: str
    start: int
    end: int
    numbers: list[int]
    place: int
    is_first: bool
    is_last: bool
    timing: int


# ---- the pipeline ---------------------------------------------------------------------------------------------------


def time_of(record: Record) -> int:
    return (BEGIN + int(json.loads(record.body)["second"])) * 1000


def keyed(record: Record) -> tuple[str, int]:
    sent = json.loads(record.body)
    return sent["key"], sent["number"]


def told(group: Any, kind: str, bounds: Any = beam.DoFn.WindowParam, pane: Any = beam.DoFn.PaneInfoParam) -> Message:
    """Returns a pane as JSON."""
    start, end = (int(at.micros) // 1_000_000 - BEGIN for at in (bounds.start, bounds.end))
    found = Pane(kind, group[0], start, end, sorted(group[1]), pane.index, pane.is_first, pane.is_last, pane.timing)
    return Message(json.dumps(found).encode())


def told_batch(batch: tuple[str, list[int]]) -> Message:
    """Returns a batch as JSON."""
    return Message(json.dumps(batch).encode(), tags=BATCH)


def build(pipeline: Any, lab: Lab, source: str, sink: str) -> None:
    pairs = (
        pipeline
        | ReadFromRocketMQ(
            source,
            name_server=lab.broker.name_server,
            start=StartFrom.earliest(),
            timestamp=time_of,
            options=ReadOptions(max_out_of_orderness_ms=DISORDER * 1000, idle_timeout_ms=600_000),
        )
        | "Key" >> beam.Map(keyed).with_output_types(tuple[str, int])
    )
    panes = []
    for shape, windowfn in WINDOWS.items():
        for name, mode in MODES.items():
            kind = f"{shape}, {name}"
            panes.append(
                pairs
                | f"Window {kind}"
                >> beam.WindowInto(
                    windowfn,
                    trigger=trigger.AfterWatermark(early=trigger.AfterCount(3), late=trigger.AfterCount(1)),
                    accumulation_mode=mode,
                    allowed_lateness=LATENESS,
                )
                | f"Group {kind}" >> beam.GroupByKey()
                | f"Tell {kind}" >> beam.Map(told, kind).with_output_types(Message)
                | f"As one {kind}" >> beam.WindowInto(window.GlobalWindows())
            )
    batches = pairs | BoundedGroupIntoBatches(1_000, max_wait_ms=500)  # never full: only the clock ends them
    panes.append(batches | "Tell batches" >> beam.Map(told_batch).with_output_types(Message))
    written = panes | beam.Flatten() | WriteToRocketMQ(sink, name_server=lab.broker.name_server, with_sent=False)
    _ = written.failed | "Refused" >> beam.Map(print)


# ---- the reference --------------------------------------------------------------------------------------------------

Reference = dict[tuple[str, int, int], list[int]]
"""Numbers by key, start and end of their window."""


def sessions_of(messages: Iterable[Sent]) -> Reference:
    found: Reference = {}
    by_key = collections.defaultdict(list)
    for each in messages:
        by_key[each.key].append(each)
    for key, some in by_key.items():
        start, last, numbers = 0, -1, list[int]()
        for each in sorted(some, key=lambda sent: sent.second):
            if numbers and each.second >= last + GAP:  # only windows that overlap are merged
                found[key, start, last + GAP] = sorted(numbers)
                numbers = []
            if not numbers:
                start = each.second
            last = each.second
            numbers.append(each.number)
        found[key, start, last + GAP] = sorted(numbers)
    return found


def sliding_of(messages: Iterable[Sent]) -> Reference:
    found: Reference = collections.defaultdict(list)
    for each in messages:
        newest = each.second // PERIOD * PERIOD
        for start in range(newest, newest - SIZE, -PERIOD):
            found[each.key, start, start + SIZE].append(each.number)
    return {at: sorted(numbers) for at, numbers in found.items()}


REFERENCES = {"sessions": sessions_of, "sliding": sliding_of}


# ---- the messages ---------------------------------------------------------------------------------------------------


class Topic:
    """The source, with two queues."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.source, self.sink = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("live", "panes"))
        for topic in (self.source, self.sink):
            lab.broker.create_topic(topic, queues=2)
        self._count = 0

    def send(self, *keys_and_seconds: tuple[str, int]) -> list[Sent]:
        """Sends messages in this order, to both queues in turn."""
        sent = [Sent(self._count + n, *each) for n, each in enumerate(keys_and_seconds)]
        self._count += len(sent)
        for number in (0, 1):
            some = [Message(json.dumps(each._asdict()).encode()) for each in sent if each.number % 2 == number]
            send_all(self._lab.broker.broker, MessageQueue(self.source, self._lab.broker.name, number), some)
        return sent

    def panes(self) -> list[Pane]:
        found = read_topic(self._lab.client, self.sink)
        return [Pane(*json.loads(record.body)) for record in found if record.tags != BATCH]

    def batches(self) -> list[tuple[str, list[int]]]:
        found = read_topic(self._lab.client, self.sink)
        return [tuple(json.loads(record.body)) for record in found if record.tags == BATCH]


def out_of_order(chance: random.Random, *bursts: tuple[str, int, int]) -> list[tuple[str, int]]:
    """Draws a message for each second of each key's burst. None comes after one that is over four seconds newer."""
    due = [(second + chance.random() * 4, key, second) for key, begin, end in bursts for second in range(begin, end)]
    return [(key, second) for _, key, second in sorted(due)]


END = [("end", 200), ("end", 200)]
"""One message for each queue: moves the watermark to 195."""


@pytest.fixture
def topic(lab: Lab) -> Iterator[Topic]:
    yield Topic(lab)
    SERVERS.stop_all()


STREAMS = [
    pytest.param("--runner=SparkRunner --streaming", id="spark", marks=pytest.mark.shows(Mode.SPARK_STREAMING)),
    pytest.param(
        "--runner=FlinkRunner --parallelism=2 --checkpointing_interval=500",
        id="flink",
        marks=pytest.mark.shows(Mode.FLINK_STREAMING),
    ),
]


@pytest.mark.parametrize("flags", STREAMS)
def test_sessions_and_sliding_windows_of_a_live_topic(flags: str, lab: Lab, topic: Topic, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    pipeline = beam.Pipeline(options=options([*flags.split(), f"--checkpoint_dir={tmp_path / 'checkpoint'}"]))
    build(pipeline, lab, topic.source, topic.sink)
    in_time = topic.send(*out_of_order(chance, ("a", 3, 18), ("b", 0, 50), ("a", 40, 55)))
    result = pipeline.run()
    alive = [goes_on(result)]
    try:
        until(lambda: any(pane.timing == EARLY for pane in topic.panes()), "an early pane", alive=alive, still_s=120)
        in_time += topic.send(*out_of_order(chance, ("a", 110, 116), ("a", 128, 136), ("b", 120, 140)))
        in_time += topic.send(*END)
        on_time = partial(untold, topic.panes, in_time, ON_TIME)
        until(lambda: not on_time(), "all panes that are on time", alive=alive, details=on_time)
        # These are for windows that are forgotten. The panes of the messages after them show that these were dropped.
        too_late = topic.send(("a", 10), ("a", 47), ("b", 20), ("c", 30))
        late = topic.send(("a", 124), ("a", 121), ("b", 131), ("b", 144), ("c", 150), ("c", 152))
        kinds = len(WINDOWS) * len(MODES)
        left = partial(not_told, topic.panes, late, kinds)
        until(lambda: not left(), "all that is late, and not too late", alive=alive, details=left)
        everything = {each.number: each.key for each in (*in_time, *too_late, *late)}
        until_found(lambda: {n for _, numbers in topic.batches() for n in numbers}, everything, alive=alive)
    finally:
        result.cancel()
    batched = [(key, number) for key, numbers in topic.batches() for number in numbers]
    assert sorted(batched, key=lambda pair: pair[1]) == [(key, number) for number, key in sorted(everything.items())]
    panes = [pane for pane in topic.panes() if not is_second_end(pane, flags)]
    assert not {each.number for each in too_late} & {number for pane in panes for number in pane.numbers}
    for shape, reference in REFERENCES.items():
        for name in MODES:
            of_kind = [pane for pane in panes if pane.kind == f"{shape}, {name}"]
            check(of_kind, in_time, late, reference(in_time), reference([*in_time, *late]), name)


def is_second_end(pane: Pane, flags: str) -> bool:
    """Returns whether Beam's GroupByKey on Flink has ended a window a second time.

    It does so if the watermark passes a window's end and its allowed lateness in one step: once when its timer for the
    end fires, and once, with an empty pane, when its timer for the lateness fires.
    """
    return "FlinkRunner" in flags and not pane.numbers and pane.place == 0


def untold(panes: Callable[[], list[Pane]], messages: list[Sent], timing: int) -> set[Any]:
    """Returns the windows without a pane of this timing, except the window of the end itself."""
    wanted = {
        (f"{shape}, {name}", *at)
        for shape, reference in REFERENCES.items()
        for name in MODES
        for at in reference(messages)
        if at[0] != "end"
    }
    return wanted - {pane[:4] for pane in panes() if pane.timing == timing}


def not_told(panes: Callable[[], list[Pane]], messages: list[Sent], kinds: int) -> list[Sent]:
    """Returns the messages that are not in panes of all kinds."""
    now = panes()
    return [each for each in messages if len({pane.kind for pane in now if each.number in pane.numbers}) < kinds]


def check(
    panes: list[Pane], in_time: list[Sent], late: list[Sent], before: Reference, after: Reference, mode: str
) -> None:
    """Checks the panes of one kind. `before`, `after`: the windows before the late messages and with them."""
    seconds = {each.number: each.second for each in [*in_time, *late]}
    by_window = collections.defaultdict(list)
    for pane in panes:
        by_window[pane.key, pane.start, pane.end].append(pane)
    for (key, start, end), some in by_window.items():
        some.sort(key=lambda pane: pane.place)
        around = [at for at in after if at[0] == key and at[1] <= start and end <= at[2]]
        assert around, "a pane of a window that never was"
        assert all(start <= seconds[number] < end for pane in some for number in pane.numbers)
        timings = [(EARLY, ON_TIME, LATE).index(pane.timing) for pane in some]
        assert timings == sorted(timings), f"{some}: early, then on time, then late"
    for at, numbers in before.items():
        if at[0] != "end":
            (on_time,) = (pane for pane in by_window[at] if pane.timing == ON_TIME)
            assert mode == "discarding" or on_time.numbers == numbers
    late_numbers = {each.number for each in late}
    assert late_numbers <= {number for pane in panes if pane.timing == LATE for number in pane.numbers}
    assert not late_numbers & {number for pane in panes if pane.timing != LATE for number in pane.numbers}
    for at, numbers in after.items():
        if at[0] == "end":
            continue
        parts = [pane for pane in panes if pane.key == at[0] and at[1] <= pane.start and pane.end <= at[2]]
        if "sliding" in parts[0].kind:
            parts = by_window[at]
            assert [pane.place for pane in parts] == list(range(len(parts)))
            assert [pane.is_first for pane in parts] == [index == 0 for index in range(len(parts))]
        if mode == "discarding":
            assert sorted(number for pane in parts for number in pane.numbers) == numbers, "each once, in one pane"
        else:
            newest = max(by_window[at], key=lambda pane: (pane.place, len(pane.numbers)))
            assert newest.numbers == numbers
            for one, next_one in zip(by_window[at], by_window[at][1:], strict=False):
                assert set(one.numbers) <= set(next_one.numbers)
