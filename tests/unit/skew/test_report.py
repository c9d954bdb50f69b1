"""The report on skew: of pipelines whose shuffles were measured, and in words."""

from __future__ import annotations

import json

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio.errors import LocalError
from rmqio.skew import HeavyKey, MeasureKeys, QueueLoad, SaltedCombinePerKey, Shuffle, SkewReport, measure_shuffles
from rmqio.testing import InMemoryCluster
from rmqio.transforms.shared import close_shared_clients
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.programs import main_of
from tests.helpers.transforms.reading import fill, read

COUNT = 2_000


def key_of(number: int) -> str:
    return "hot" if number % 10 < 6 else f"k{number % 100}"


def test_each_shuffle_is_measured_once_and_results_stay_the_same() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    numbers = pipeline | beam.Create(range(COUNT), reshuffle=False)
    pairs = numbers | beam.Map(lambda n: (key_of(n), 1)).with_output_types(tuple[str, int])
    totals = pairs | "Total" >> beam.CombinePerKey(sum)
    salted = pairs | "Salted" >> SaltedCombinePerKey(sum)
    grouped = pairs | "Group" >> beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, sum(values)))
    measured = pairs | MeasureKeys("my state")
    expected = [("hot", COUNT * 6 // 10), *((f"k{n}", COUNT // 100) for n in range(100) if n % 10 >= 6)]
    for label, found in (("a", totals), ("b", salted), ("c", grouped)):
        assert_that(found, equal_to(expected), label)
    assert_that(measured | beam.combiners.Count.Globally(), equal_to([COUNT]), "d")
    measure_shuffles(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    report = SkewReport.of(result)
    ours = {each.name: each for each in report.shuffles if each.name in ("Total", "Salted", "Group", "my state")}
    assert {name: each.kind for name, each in ours.items()} == {
        "Total": "combine", "Salted": "salted", "Group": "group", "my state": "state",
    }  # fmt: skip
    for each in ours.values():
        assert (each.elements, each.keys[0]) == (COUNT, HeavyKey("'hot'", COUNT * 6 // 10))
        assert len(each.keys) == 10
    assert len([each for each in report.suggestions if each.startswith(tuple(ours))]) == 4
    assert "suggestion: Total: 60% of all elements have the key 'hot'" in str(report)


def test_a_global_combine_has_no_keys_to_spread() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    total = pipeline | beam.Create(range(COUNT)) | beam.CombineGlobally(sum)
    _ = pipeline | "Other" >> beam.Create([("a", 1)]) | "Group" >> beam.GroupByKey()
    assert_that(total, equal_to([sum(range(COUNT))]))
    measure_shuffles(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    report = SkewReport.of(result)
    assert [each for each in report.shuffles if "CombineGlobally" in each.name] == []
    assert "Group" in {each.name for each in report.shuffles}


def test_queues_that_were_read_are_counted() -> None:
    with InMemoryCluster() as cluster:
        fill(cluster, 90, 5, 5)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = pipeline | read(cluster)
        close_shared_clients()
    report = SkewReport.of(pipeline.result)
    assert report.queues == (
        QueueLoad("t/broker-a/0", 90), QueueLoad("t/broker-a/1", 5), QueueLoad("t/broker-a/2", 5),
    )  # fmt: skip
    assert report.imbalance == pytest.approx(2.7)
    (suggestion,) = report.suggestions
    assert suggestion.startswith("read: queue t/broker-a/0 has 2.7 times the mean, and one worker reads it.")
    assert "read: 100 records of 3 queues" in str(report)


def test_empty_queues_lower_the_mean() -> None:
    """All messages in one of three queues are the worst case, and not an even load of one queue."""
    with InMemoryCluster() as cluster:
        fill(cluster, 90, 0, 0)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = pipeline | read(cluster)
        close_shared_clients()
    report = SkewReport.of(pipeline.result)
    assert report.queues == (
        QueueLoad("t/broker-a/0", 90), QueueLoad("t/broker-a/1", 0), QueueLoad("t/broker-a/2", 0),
    )  # fmt: skip
    assert report.imbalance == pytest.approx(3)
    (suggestion,) = report.suggestions
    assert suggestion.startswith("read: queue t/broker-a/0 has 3.0 times the mean")


def test_a_program_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as broker:
        for topic in ("orders", "totals"):
            broker.cluster.create_topic(topic, 2)
        for number in range(1_500):
            body = json.dumps({"key": key_of(number), "amount": 1, "time_ms": number}).encode()
            broker.cluster.append("orders", body, queue_id=number % 2)
        flags = f"--name_server={broker.name_server} --source_topic=orders --sink_topic=totals --stop=latest".split()
        assert main_of("windowed_orders")([*flags, "--skew_report"]) == 0
        assert len(broker.cluster.records("totals")) == 41
    out = capsys.readouterr().out
    assert out.startswith(
        "windowed_orders.py: 1,500 orders read, 41 totals written\nshuffle Sum and count: 1,500 elements"
    )
    assert "60.0%           900  'hot'" in out
    assert "read: 1,500 records of 2 queues" in out
    assert "try rmqio.skew.SaltedCombinePerKey instead of CombinePerKey, and measure." in out


def test_without_skew_there_is_nothing_to_suggest() -> None:
    even = Shuffle("a", "group", 100_000, (HeavyKey("'x'", 900),))
    few = Shuffle("b", "group", 10, (HeavyKey("'x'", 10),))
    report = SkewReport((even, few), (QueueLoad("q", 5), QueueLoad("r", 4)))
    assert report.suggestions == []
    assert str(SkewReport((), ())) == "skew: nothing was measured"


def test_a_worker_reports_a_bounded_number_of_keys() -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pairs = pipeline | beam.Create([(n % 150, n) for n in range(3_000)]).with_output_types(tuple[int, int])
        _ = pairs | MeasureKeys("many")
    (shuffle,) = SkewReport.of(pipeline.result).shuffles
    assert len(shuffle.keys) <= 40
    assert all(each.elements <= 20 for each in shuffle.keys)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(LocalError, match="shuffle is ''"):
        MeasureKeys("")
    with pytest.raises(LocalError, match="kind is 'sum'"):
        MeasureKeys("a", kind="sum")
