"""`Correlate` finds the same on all runners."""

from __future__ import annotations

import json
from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.rules import Correlate, CorrelationKind, CorrelationRule, Match
from rmqio.runners import options
from rmqio.runners.flink.jobserver.servers import SERVERS

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]
FLAGS = (
    "DirectRunner",
    "SparkRunner",
    "SparkRunner --streaming",
    "FlinkRunner --parallelism=1",
    "FlinkRunner --parallelism=1 --streaming",
)
MANY = CorrelationRule("many", CorrelationKind.EVENT_COUNT, ("failed",), 10_000, ("user",), count=3)
ORDER = CorrelationRule("order", CorrelationKind.TEMPORAL_ORDERED, ("failed", "done"), 60_000, ("user",), generate=True)


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


@pytest.mark.parametrize("flags", FLAGS)
def test_correlations_are_found(flags: str) -> None:
    given = [(9, "failed", "a"), (1, "failed", "a"), (5, "failed", "a"), (2, "failed", "b"), (30, "failed", "b"),
             (50, "done", "b"), (51, "other", "b")]  # fmt: skip

    def timed(each: tuple[int, str, str]) -> TimestampedValue:
        second, rule_id, user = each
        return TimestampedValue(Match(json.dumps({"user": user}).encode(), rule_id, "", "low", (), "1", ()), second)

    with beam.Pipeline(options=options(f"--runner={flags}".split())) as pipeline:
        matches = pipeline | beam.Create(given) | "Timed" >> beam.Map(timed).with_output_types(Match)
        found = matches | Correlate([MANY, ORDER])
        shown = found.correlated | beam.Map(lambda each: (each.rule_id, each.group[0][1], each.first_ms, each.last_ms))
        assert_that(shown, equal_to([("many", "a", 1_000, 9_000), ("order", "b", 30_000, 50_000)]))
        alone = found.matches | "Ids" >> beam.Map(lambda each: each.rule_id)
        assert_that(alone, equal_to(["done", "other"]), label="alone")
