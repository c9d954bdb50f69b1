"""Bounded reads from a real RocketMQ and writes to it, on Spark: runs the integration tests of the transforms again.

Two kinds of tests are left out: those that end an unbounded pipeline or look into a running one, which need a streaming
runner, and the test on the order of sharding keys. That order holds within a bundle, and on Spark, elements of one key
come from several bundles.
"""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio import StartFrom, StopAt
from rmqio.local import LocalRocketMQ
from rmqio.runners.spark import SparkRunner
from tests.helpers.ledgers import ledger
from tests.helpers.ledgers.ledger import Lab, finished
from tests.helpers.pipelines.holding import Hold
from tests.integration.reading import test_commits as test_read_commits
from tests.integration.reading import test_faults as test_read_faults
from tests.integration.reading import test_filters as test_read_filters
from tests.integration.reading import test_starts as test_read_starts
from tests.integration.writing import test_pipeline as writes

pytestmark = [pytest.mark.broker, pytest.mark.slow]

READS = {
    test_read_starts: [
        "test_earliest_to_latest_is_everything_once_and_in_order",
        "test_without_a_start_and_a_group_it_starts_at_the_latest",
        "test_from_a_time_that_the_queue_covers",
        "test_up_to_a_time",
        "test_group_offsets_and_the_reset_where_there_are_none",
        "test_specific_offsets_then_the_groups_then_the_reset",
        "test_an_offset_behind_the_end_fails_or_goes_where_the_policy_says",
        "test_a_stop_before_the_start_is_nothing",
        "test_max_num_records_bounded",
        "test_several_topics_are_read_each_once",
        "test_explicit_queues",
        "test_read_all_takes_every_kind_of_element",
        "test_read_all_reads_equal_elements_each",
        "test_read_all_of_an_unknown_topic_fails",
    ],
    test_read_filters: [
        "test_tags_pass_and_no_other_with_the_same_hash",
        "test_sql",
        "test_a_stop_within_what_is_filtered_out_ends_the_read",
    ],
    test_read_commits: [
        "test_a_bounded_read_leaves_a_group_never_seen_before_at_its_stops",
        "test_a_bounded_read_under_a_record_limit_leaves_the_group_behind_the_last_record",
        "test_without_a_group_or_with_commits_off_nothing_is_committed",
        "test_groups_do_not_see_each_other",
    ],
}
WRITES = [
    "test_every_way_of_sending_delivers_each_element_once",
    "test_tags_keys_and_properties_arrive",
    "test_delayed_messages_arrive_late",
    "test_what_the_broker_refuses_fails_and_the_rest_arrives",
    "test_the_largest_message_arrives",
    "test_selector_sends_to_several_topics",
    "test_records_written_twice_carry_the_same_ids",
]
for _module, _names in READS.items():
    globals().update({name: getattr(_module, name) for name in _names})
globals().update({name: getattr(writes, name) for name in WRITES})
tagged, timed, family = test_read_filters.tagged, test_read_starts.timed, test_read_starts.family
client, topic = writes.client, writes.topic


class FileSink(beam.DoFn):
    """Writes its elements with their times to its own file. The `Run` reads the file when the pipeline has ended."""

    folder = ""
    hold: Hold | None = None

    def __init__(self, name: str) -> None:
        self._run = Path(self.folder, name)
        self._run.mkdir()
        self._hold = self.hold

    def setup(self) -> None:
        self._file = Path(self._run, uuid.uuid4().hex).open("ab")  # noqa: SIM115  closed in teardown

    def process(self, element: Any) -> None:
        if self._hold is not None:
            self._hold.wait(element)
        pickle.dump((time.monotonic(), element), self._file)

    def teardown(self) -> None:
        self._file.close()


def written(name: str) -> Iterator[tuple[float, Any]]:
    """Yields what the sinks of a run have written."""
    for path in Path(FileSink.folder, name).iterdir():
        with path.open("rb") as file, contextlib.suppress(EOFError):
            while True:
                yield pickle.load(file)


class Run(ledger.Run):
    """Reads what the sinks have written, in the order of writing."""

    def run(self, transforms: Any) -> None:
        ended, self.has_ended = self.has_ended, type(self.has_ended)()
        super().run(transforms)
        if self.error is None:
            for arrival, record in sorted(written(self.name), key=lambda each: each[0]):
                self.arrivals.append(arrival)
                self.records.append(record)
        self.has_ended = ended
        ended.set()


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Runs a first pipeline, which starts Spark, so that the tests do not wait for that."""
    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        _ = pipeline | beam.Create([1])


@pytest.fixture(autouse=True)
def on_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(FileSink, "folder", str(tmp_path))
    monkeypatch.setattr(ledger.Run, "runner", staticmethod(SparkRunner))
    monkeypatch.setattr(ledger.Run, "sink", FileSink)
    monkeypatch.setattr(ledger, "Run", Run)
    monkeypatch.setattr(writes, "FnApiRunner", SparkRunner)


def test_queues_are_read_in_several_processes(lab: Lab) -> None:
    queues = lab.topic(100, 100, 100, 100)
    run = finished(lab.read(queues[0].topic, stop=StopAt.latest()))
    assert run.offsets == {queue: list(range(100)) for queue in queues}
    assert len(list(Path(FileSink.folder, run.name).iterdir())) >= 2


def end_of(fails: bool, path: Path, element: tuple[int, Iterable[int]]) -> None:
    if fails:
        raise ValueError("it fails")
    path.write_text(json.dumps(sorted(element[1])))


def test_what_fails_behind_a_shuffle_is_read_again(lab: Lab, tmp_path: Path) -> None:
    """The commits of a bounded read wait for the stages behind it, if there are some."""
    queues, group, path = lab.topic(30, 20), ledger.new_group(), tmp_path / "found"

    def run(*, fails: bool) -> None:
        start = StartFrom.group_offsets("earliest")
        with beam.Pipeline(runner=SparkRunner()) as pipeline:
            records = pipeline | lab.read(queues[0].topic, consumer_group=group, start=start, stop=StopAt.latest())
            offsets = records | beam.Map(lambda record: record.queue_offset)
            grouped = offsets | beam.WithKeys(1) | beam.GroupByKey()
            _ = grouped | "End" >> beam.Map(functools.partial(end_of, fails, path))

    with pytest.raises(Exception, match="it fails"):
        run(fails=True)
    assert lab.committed(group, *queues) == [None, None]
    run(fails=False)
    assert json.loads(path.read_text()) == sorted([*range(30), *range(20)])
    assert lab.committed(group, *queues) == [30, 20]


@pytest.fixture(scope="module")
def mortal() -> Iterator[Lab]:
    """Nobody else needs its broker: waits would say nothing while it is killed."""
    with LocalRocketMQ(name="mortal", broker_heap_mb=512) as broker, contextlib.closing(Lab(broker)) as lab:
        yield lab


@pytest.mark.parametrize("fault", ["killed", "paused"])
def test_a_read_rides_out_a_broker_that_is(
    mortal: Lab, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold(tmp_path / "hold", 3_000).begin()
    monkeypatch.setattr(FileSink, "hold", hold)
    queues = mortal.topic(*[6_000] * 4, body_size=100)
    group = ledger.new_group()
    faults = test_read_faults
    struck = faults.kill_and_restart(mortal.broker) if fault == "killed" else faults.pause_and_resume(mortal.broker, 8)
    read = mortal.read(queues[0].topic, consumer_group=group, stop=StopAt.latest(), options=faults.IMPATIENT)
    try:
        with ledger.running(read, still_s=120) as run:
            run.wait_until(hold.queues, "a queue to be held in the middle")
            struck()
            hold.release()
    finally:
        struck.join()
    assert run.error is None, str(run)
    faults.assert_survived(run, mortal, queues, struck)
    assert mortal.committed(group, *queues) == [6_000] * 4
