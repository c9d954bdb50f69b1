"""Shows what `rmqio.runners.capabilities` says about reads without end on DirectRunner, on a topic in memory."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import window

from rmqio import Message, ReadFromRocketMQ, Record, StartFrom
from rmqio.runners.capabilities import Mode
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.pipelines.needy_dofns import (
    Alarm,
    ClockAlarm,
    CountUp,
    EventAlarm,
    Pairs,
    RunningTotal,
    note,
    noted,
    waits,
)
from tests.helpers.waiting import at_most, until

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

shows = pytest.mark.shows


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
            until(lambda number=number: bool(ends) or len(noted(folder / "plain")) >= number, "a record")  # type: ignore[misc]
        before = noted(folder / "other")
        producer.send(Message(b"end", topic="source"))
        thread.join(at_most(30))
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
