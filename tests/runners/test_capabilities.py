"""Shows what `rmqio.runners.capabilities` says about DirectRunner and FlinkRunner, with minimal pipelines.

The same pipelines run in all modes. SparkRunner has its own tests for what the table says. `test_live_windows`, and the
tests that kill drivers, jobs and TaskManagers, show what it says about live topics.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, OrderedListStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from rmqio import Message, ReadFromRocketMQ, Record, StartFrom
from rmqio.errors import LocalError
from rmqio.runners import options
from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.servers import SERVERS
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.ledger import wait_until

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

DIRECT = "--runner=DirectRunner"
BATCH = "--runner=FlinkRunner --parallelism=1"
STREAM = f"{BATCH} --streaming --checkpointing_interval=500"
shows = pytest.mark.shows
of_direct = pytest.param(DIRECT, id="direct", marks=shows(Mode.DIRECT))
of_batch = pytest.param(BATCH, id="flink", marks=shows(Mode.FLINK))
of_stream = pytest.param(STREAM, id="flink-streaming", marks=shows(Mode.FLINK_STREAMING))
everywhere = pytest.mark.parametrize("mode", [of_direct, of_batch, of_stream])
Pairs = tuple[str, int]


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


def on(mode: str) -> beam.Pipeline:
    return beam.Pipeline(options=options(mode.split()))


def note(path: Path, *what: object) -> None:
    """Writes a line to a file, since other processes do not see this process's memory."""
    with path.open("a") as file:
        file.write(" ".join(map(str, what)) + "\n")


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def timed(pipeline: Any, *times: int) -> Any:
    """Returns pairs of one key whose timestamp is their number."""
    stamp = beam.Map(lambda n: window.TimestampedValue(("a", n), n)).with_output_types(Pairs)
    return pipeline | beam.Create(times) | "Stamp" >> stamp


# ---- DoFns ----------------------------------------------------------------------------------------------------------


class Counting(RestrictionProvider):
    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


class CountUp(beam.DoFn):
    """Emits the numbers below its element, and defers its residual after each number."""

    def process(self, element: int, numbers: Any = beam.DoFn.RestrictionParam(Counting())) -> Iterator[int]:  # noqa: B008
        number = numbers.current_restriction().start
        if numbers.try_claim(number):
            yield number
            numbers.defer_remainder()


class Finalize(beam.DoFn):
    """Notes that its bundle is final."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Any, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[Any]:
        finalizer.register(functools.partial(note, self._path, element))
        yield element


class RunningTotal(beam.DoFn):
    TOTAL = CombiningValueStateSpec("total", sum)

    def process(self, element: Pairs, total: Any = beam.DoFn.StateParam(TOTAL)) -> Iterator[int]:
        total.add(element[1])
        yield total.read()


class InOrder(beam.DoFn):
    SEEN = OrderedListStateSpec("seen", VarIntCoder())

    def process(self, element: Pairs, seen: Any = beam.DoFn.StateParam(SEEN)) -> Iterator[list[int]]:
        seen.add((Timestamp(element[1]), element[1]))
        yield [number for _, number in seen.read()]


class Alarm(beam.DoFn):
    """Sets a timer for `later_s` seconds later. Notes the clock when it sets the timer and when the timer fires."""

    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def __init__(self, path: Path, later_s: float) -> None:
        self._path, self._later_s = path, later_s

    def _set(self, element: Pairs, timer: Any, at: Any) -> None:
        note(self._path, "set", element[0], time.time())
        timer.set(at + self._later_s)

    def _fired(self, key: str) -> Iterator[Any]:
        note(self._path, "fired", key, time.time())
        return iter([key])


class EventAlarm(Alarm):
    def process(
        self, element: Pairs, at: Any = beam.DoFn.TimestampParam, timer: Any = beam.DoFn.TimerParam(Alarm.EVENT)
    ) -> None:
        self._set(element, timer, at)

    @on_timer(Alarm.EVENT)
    def ring(self, key: Any = beam.DoFn.KeyParam, at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        self._fired(key)
        yield key, float(at)


class ClockAlarm(Alarm):
    def process(self, element: Pairs, timer: Any = beam.DoFn.TimerParam(Alarm.CLOCK)) -> None:
        self._set(element, timer, Timestamp.of(time.time()))

    @on_timer(Alarm.CLOCK)
    def ring(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield from self._fired(key)


# ---- bounded pipelines ----------------------------------------------------------------------------------------------


@everywhere
def test_a_splittable_dofn_that_defers_itself(mode: str) -> None:
    with on(mode) as p:
        numbers = p | beam.Create([2, 3]) | beam.ParDo(CountUp()).with_output_types(int)
        assert_that(numbers, equal_to([0, 0, 1, 1, 2]))


# Flink runs a bounded pipeline that requests finalization as a stream. Unbounded pipelines: below.
@pytest.mark.parametrize(
    "mode", [of_direct, pytest.param(BATCH, id="flink-streaming", marks=shows(Mode.FLINK_STREAMING))]
)
def test_bundles_are_finalized(mode: str, tmp_path: Path) -> None:
    with on(mode) as p:
        assert_that(p | beam.Create([1, 2]) | beam.ParDo(Finalize(tmp_path / "final")), equal_to([1, 2]))
    assert sorted(noted(tmp_path / "final")) == ["1", "2"]


@everywhere
def test_state_by_key(mode: str) -> None:
    with on(mode) as p:
        totals = p | beam.Create([("a", 1), ("b", 1), ("a", 1)]).with_output_types(Pairs) | beam.ParDo(RunningTotal())
        assert_that(totals, equal_to([1, 2, 1]))


def put_in_order(pipeline: Any) -> Any:
    pairs = pipeline | beam.Create([("a", 2), ("a", 1)]).with_output_types(Pairs)
    return pairs | beam.ParDo(InOrder()) | beam.Map(lambda numbers: numbers == sorted(numbers))


@shows(Mode.DIRECT)
def test_ordered_lists_as_state() -> None:
    with on(DIRECT) as p:
        assert_that(put_in_order(p), equal_to([True, True]))


@pytest.mark.parametrize("mode", [of_batch, of_stream])
def test_ordered_lists_as_state_fail_on_flink(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = on(f"{mode} --number_of_execution_retries=0")
    _ = put_in_order(p)
    with pytest.raises(LocalError, match=r"ordered lists as state \(ParDo\(InOrder\)\)"):
        p.run()
    monkeypatch.setattr("rmqio.runners.report.Report.check", lambda report: None)
    with pytest.raises(RuntimeError, match=r"IllegalStateException"):
        p.run().wait_until_finish()


@everywhere
def test_event_time_timers(mode: str, tmp_path: Path) -> None:
    with on(mode) as p:
        fired = timed(p, 10) | beam.ParDo(EventAlarm(tmp_path / "notes", 5))
        assert_that(fired, equal_to([("a", 15.0)]))


@pytest.mark.parametrize("mode", [of_direct, of_batch])
def test_processing_time_timers_of_what_ends_do_not_wait(mode: str, tmp_path: Path) -> None:
    with on(mode) as p:
        assert_that(timed(p, 10) | beam.ParDo(ClockAlarm(tmp_path / "notes", 3_000)), equal_to(["a"]))


def with_a_side_input(pipeline: Any) -> Any:
    numbers = beam.pvalue.AsList(pipeline | "Side" >> beam.Create([5, 6]))
    return pipeline | "Main" >> beam.Create([1, 2]) | "Look" >> beam.Map(lambda n, side: (n, sum(side)), numbers)


@pytest.mark.parametrize("mode", [of_direct, of_batch])
def test_side_inputs(mode: str) -> None:
    with on(mode) as p:
        assert_that(with_a_side_input(p), equal_to([(1, 11), (2, 11)]))


@shows(Mode.FLINK_STREAMING)
def test_a_checkpoint_with_a_side_input_fails_on_flink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.report.Report.check", lambda report: None)
    p = on(f"{STREAM} --number_of_execution_retries=0")
    _ = with_a_side_input(p)
    with pytest.raises(RuntimeError, match=r"cannot be cast to class .*WindowedValue"):
        p.run().wait_until_finish()


@everywhere
def test_windows_that_merge(mode: str) -> None:
    with on(mode) as p:
        sums = timed(p, 0, 1, 2, 20, 21) | beam.WindowInto(window.Sessions(5)) | beam.CombinePerKey(sum)
        assert_that(sums, equal_to([("a", 3), ("a", 41)]))


@shows(Mode.DIRECT)
def test_an_unbounded_source_that_ends() -> None:
    begin = Timestamp.of(1_000_000_000)
    with on(DIRECT) as p:
        times = p | PeriodicImpulse(begin, begin + 3, 1, apply_windowing=False)
        keyed = (
            times | beam.Map(lambda at: ("a", 1)).with_output_types(Pairs) | beam.WindowInto(window.FixedWindows(60))
        )
        assert_that(keyed | beam.CombinePerKey(sum), equal_to([("a", 3)]))


# ---- unbounded pipelines --------------------------------------------------------------------------------------------


@shows(Mode.FLINK_STREAMING)
def test_timers_of_a_stream_wait_for_their_time_and_its_bundles_are_finalized(tmp_path: Path) -> None:
    p = on(STREAM)
    ticks = p | PeriodicImpulse(fire_interval=0.5)
    keyed = ticks | "Key" >> beam.Map(lambda at: (str(float(at)), 1)).with_output_types(Pairs)
    _ = keyed | "Event" >> beam.ParDo(EventAlarm(tmp_path / "event", 1))
    _ = keyed | "Clock" >> beam.ParDo(ClockAlarm(tmp_path / "clock", 1))
    _ = keyed | "Final" >> beam.ParDo(Finalize(tmp_path / "final"))
    result = p.run()
    try:
        for name in ("event", "clock"):
            wait_until(lambda name=name: len(waits(tmp_path / name)) >= 3, f"{name} timers", timeout_s=60)  # type: ignore[misc]
        wait_until(lambda: len(noted(tmp_path / "final")) >= 3, "bundles to be final", timeout_s=60)
    finally:
        result.cancel()
    assert min(waits(tmp_path / "clock")) >= 1
    due = {line.split()[1]: float(line.split()[1]) + 1 for line in noted(tmp_path / "event")}
    fired = (line.split() for line in noted(tmp_path / "event") if line.startswith("fired"))
    assert all(float(at) >= due[key] for _, key, at in fired)


def waits(path: Path) -> list[float]:
    """Returns the seconds between the setting and the firing of each timer that has fired."""
    found = [line.split() for line in noted(path)]
    begun = {key: float(at) for what, key, at in found if what == "set"}
    return [float(at) - begun[key] for what, key, at in found if what == "fired"]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        cluster.create_topic("source")
        yield cluster


class Plain(beam.DoFn):
    """Notes its elements, and ends the pipeline on request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Record) -> None:
        note(self._path, "x")
        if element.body == b"end":
            raise ValueError("it is to end")


def read_with(cluster: InMemoryCluster, branch: Callable[[Any], Any], folder: Path) -> tuple[list[str], list[str]]:
    """Returns what a plain branch and another one get from an unbounded read, while messages arrive one by one."""
    factory = InMemoryClientFactory(cluster.name)
    p = beam.Pipeline(runner=FnApiRunner())
    records = p | "Read" >> ReadFromRocketMQ("source", start=StartFrom.earliest(), client_factory=factory)
    _ = records | "Plain" >> beam.ParDo(Plain(folder / "plain"))
    keyed = records | "Key" >> beam.Map(lambda record: ("a", 1)).with_output_types(Pairs)
    _ = branch(keyed) | "Other" >> beam.Map(functools.partial(note, folder / "other"))
    ends: list[str] = []

    def run() -> None:
        try:
            p.run()
        except Exception as error:  # noqa: BLE001  checked below
            ends.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    producer = factory.producer("test")
    try:
        for number in range(1, 6):
            producer.send(Message(b"on", topic="source"))
            wait_until(lambda number=number: bool(ends) or len(noted(folder / "plain")) >= number, "a record")  # type: ignore[misc]
        before = noted(folder / "other")
        producer.send(Message(b"end", topic="source"))
        thread.join(30)
        assert not thread.is_alive()
    finally:
        producer.close()
    assert "it is to end" in ends[0]
    return noted(folder / "plain"), before


def windowed(keyed: Any) -> Any:
    return keyed | beam.WindowInto(window.FixedWindows(0.1)) | beam.GroupByKey()


def flattened(keyed: Any) -> Any:
    return (keyed | "1" >> beam.Map(str), keyed | "2" >> beam.Map(str)) | beam.Flatten()


def beside_itself(keyed: Any) -> Any:
    return keyed.pipeline | beam.Create([1]) | beam.Map(lambda n, side: len(side), beam.pvalue.AsList(keyed))


def split_further(keyed: Any) -> Any:
    return keyed | beam.Values() | beam.ParDo(CountUp())


@shows(Mode.DIRECT)
@pytest.mark.parametrize("branch", [windowed, flattened, beside_itself, split_further, lambda k: k | beam.Reshuffle()])
def test_a_shuffle_behind_a_read_without_end_would_wait_for_ever(
    branch: Callable[[Any], Any], cluster: InMemoryCluster, tmp_path: Path
) -> None:
    plain, shuffled = read_with(cluster, branch, tmp_path)
    assert len(plain) == 6
    assert shuffled == []


def with_state(keyed: Any) -> Any:
    return keyed | beam.ParDo(RunningTotal())


def flattened_alone(keyed: Any) -> Any:
    return (keyed,) | beam.Flatten()


def beside_another(keyed: Any) -> Any:
    numbers = beam.pvalue.AsList(keyed.pipeline | beam.Create([1, 2]))
    return keyed | "Look" >> beam.Map(lambda pair, side: sum(side), numbers)


@pytest.mark.parametrize("branch", [with_state, flattened_alone, beside_another])
def test_what_is_no_shuffle_does_not_wait(
    branch: Callable[[Any], Any], cluster: InMemoryCluster, tmp_path: Path
) -> None:
    _, other = read_with(cluster, branch, tmp_path)
    assert len(other) >= 4


@shows(Mode.DIRECT)
@pytest.mark.parametrize("alarm", [EventAlarm, ClockAlarm])
def test_timers_behind_a_read_without_end_fire_at_once(
    alarm: type[Alarm], cluster: InMemoryCluster, tmp_path: Path
) -> None:
    alarms = beam.ParDo(alarm(tmp_path / "notes", 3_000))
    read_with(cluster, lambda keyed: keyed | alarms, tmp_path)
    assert len(waits(tmp_path / "notes")) >= 4
    assert max(waits(tmp_path / "notes")) < 60


@shows(Mode.FLINK_STREAMING)
def test_a_processing_time_timer_of_what_ends_would_keep_flinks_stream_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rmqio.runners.report.Report.check", lambda report: None)
    p = on(STREAM)
    _ = timed(p, 10) | beam.ParDo(ClockAlarm(tmp_path / "notes", 1))
    result = p.run()
    try:
        wait_until(lambda: bool(noted(tmp_path / "notes")), "the timer to be set", timeout_s=60)
        time.sleep(6)
        assert result.state == PipelineState.RUNNING
        assert not waits(tmp_path / "notes")
    finally:
        SERVERS.stop_all()  # Flink takes a minute to cancel it
