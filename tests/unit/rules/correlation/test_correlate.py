"""`Correlate` in Beam: groups, aliases, late matches, and the end of state."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_pipeline import TestPipeline as BeamPipeline
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.errors import LocalError, WireError
from rmqio.rules.correlation import Correlate, Correlated, CorrelatedCoder, CorrelateFn, ToGroupsFn, event_of
from rmqio.rules.errors import RuleError
from rmqio.rules.formats.json_rules import dumps
from rmqio.rules.ir import CorrelationKind, CorrelationRule
from rmqio.rules.ruleset import RuleSet
from rmqio.rules.transform import MatchRules
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.runtime.ranks.updating import Cell


class Hit(NamedTuple):
    """The part of a match that is looked at."""

    message: Any
    rule_id: str
    ruleset_version: str = "v1"


def hit(seconds: float, rule_id: str, **event: Any) -> TimestampedValue:
    return TimestampedValue(Hit(json.dumps(event).encode(), rule_id), seconds)


MANY = CorrelationRule(
    "many",
    CorrelationKind.EVENT_COUNT,
    ("failed",),
    10_000,
    ("user",),
    count=3,
    title="t",
    level="high",
    tags=("x",),
)
BOTH = CorrelationRule(
    "both", CorrelationKind.TEMPORAL_ORDERED, ("failed", "done"), 60_000, ("user",), generate=True,
    aliases=(("user", "done", "account.name"),),
)  # fmt: skip


def _hosts(rule_id: str = "hosts") -> CorrelationRule:
    return CorrelationRule(rule_id, CorrelationKind.VALUE_COUNT, ("login",), 60_000, ("user",), count=2, field="host")


def test_matches_of_a_group_are_correlated_in_order_of_time() -> None:
    hits = [
        hit(9, "failed", user="a"), hit(1, "failed", user="a"), hit(5, "failed", user="a"),
        hit(2, "failed", user="b"), hit(6, "failed", user="b"), hit(14, "failed", user="b"),
        hit(20, "done", account={"name": "b"}), hit(21, "other", user="b"), hit(22, "failed"),
        hit(30, "login", user="c", host="x"), hit(31, "login", user="c", host="x"),
        hit(32, "login", user="c", host="y"),
    ]  # fmt: skip
    with BeamPipeline(options=PipelineOptions([])) as pipeline:
        stream = Stream().add_elements(hits).advance_watermark_to_infinity()
        found = pipeline | stream | Correlate([MANY, BOTH, _hosts()])
        assert_that(
            found.correlated,
            equal_to(
                [
                    Correlated("many", "t", "high", ("x",), (("user", "a"),), 1_000, 9_000, 3, ("failed",), "v1"),
                    Correlated("both", "", "medium", (), (("user", "b"),), 14_000, 20_000, 2, ("failed", "done"), "v1"),
                    Correlated("hosts", "", "medium", (), (("user", "c"),), 31_000, 32_000, 2, ("login",), "v1"),
                ]
            ),
        )
        alone = found.matches | beam.Map(lambda each: each.rule_id)
        assert_that(alone, equal_to(["done", "other"]), label="alone")


def test_late_matches_count_unless_their_group_has_gone_beyond_them() -> None:
    """The watermark is at 50 s. A group without state takes what comes, in order of time; then it is beyond 3 s."""
    late = [hit(3, "failed", user="z"), hit(1, "failed", user="z"), hit(2, "failed", user="z")]
    stream = (
        Stream()
        .advance_watermark_to(0)
        .add_elements([hit(49, "failed", user="a")])
        .advance_watermark_to(50)
        .add_elements([*late, hit(45, "failed", user="a"), hit(46, "failed", user="a")])
        .advance_watermark_to(51)
        .add_elements([hit(4, "failed", user="b"), hit(6, "failed", user="b")])
        .advance_watermark_to(52)
        .add_elements([hit(5, "failed", user="b"), hit(8, "failed", user="b")])
        .advance_watermark_to_infinity()
    )
    with BeamPipeline(options=PipelineOptions([])) as pipeline:
        found = pipeline | stream | Correlate([MANY])
        shown = found.correlated | beam.Map(lambda each: (each.group[0][1], each.first_ms, each.last_ms))
        assert_that(shown, equal_to([("z", 1_000, 3_000)]))


def test_equal_numbers_are_one_group_and_one_value() -> None:
    """A producer in JavaScript writes 5 where another one writes 5.0."""
    failed = [hit(at, "failed", user=user) for at, user in ((1, 5), (2, 5.0), (3, 5e0), (4, 5.5))]
    logins = [
        hit(at, "login", user="c", host=host) for at, host in ((30, 1), (31, 1.0), (90.5, [1, 2.0]), (91, [1, 2]))
    ]
    with BeamPipeline(options=PipelineOptions([])) as pipeline:
        stream = Stream().add_elements([*failed, *logins]).advance_watermark_to_infinity()
        found = pipeline | stream | Correlate([MANY, _hosts()])
        shown = found.correlated | beam.Map(lambda each: (each.group, each.first_ms, each.last_ms))
        assert_that(shown, equal_to([((("user", 5),), 1_000, 3_000), ((("user", "c"),), 31_000, 90_500)]))


def test_a_late_match_does_not_count_and_the_state_ends() -> None:
    stream = (
        Stream()
        .advance_watermark_to(0)
        .add_elements([hit(1, "failed", user="a"), hit(2, "failed", user="a")])
        .advance_watermark_to(5)
        .add_elements([hit(1.5, "failed", user="a")])  # late
        .advance_watermark_to(6)
        .add_elements([hit(11, "failed", user="a")])  # completes
        .advance_watermark_to(100)
        .add_elements([hit(101, "failed", user="a"), hit(102, "failed", user="a")])
        .advance_watermark_to(200)
        .add_elements([hit(201, "failed", user="a")])  # too long after
        .advance_watermark_to_infinity()
    )
    with BeamPipeline(options=PipelineOptions(["--streaming"])) as pipeline:
        found = pipeline | stream | Correlate([MANY])
        times = found.correlated | beam.Map(lambda each: (each.first_ms, each.last_ms, each.number))
        assert_that(times, equal_to([(1_000, 11_000, 3)]))


def test_a_number_that_is_too_small_comes_out_at_the_end_of_the_span() -> None:
    rule = CorrelationRule("few", CorrelationKind.EVENT_COUNT, ("beat",), 10_000, ("host",), operator="lt", count=3)
    hits = [hit(at, "beat", host="a") for at in (0, 3, 6, 20, 29)]
    with BeamPipeline(options=PipelineOptions([])) as pipeline:
        stream = Stream().add_elements(hits).advance_watermark_to_infinity()
        found = pipeline | stream | Correlate([rule])
        times = found.correlated | beam.Map(lambda each: (each.first_ms, each.last_ms, each.number))
        assert_that(times, equal_to([(20_000, 29_000, 2)]))


class Bag(list[Any]):
    add = list.append

    def read(self) -> list[Any]:
        return list(self)


def test_what_is_first_is_due_first() -> None:
    fn: Any = CorrelateFn()
    bags = [Bag() for _ in fn.BAGS]
    used, kept, key, done, following, due = (Cell() for _ in range(6))
    group, event = json.dumps([dumps([MANY]), ["a"]]).encode(), json.dumps(["failed", None, "v1"]).encode()
    asked = []
    for second in (20, 10, 30):
        fn.process((group, event), Timestamp(second), *bags, used, key, done, following, due)
        asked.append(due.value)
    assert asked == [Timestamp(21), Timestamp(11), Timestamp(11)]
    assert list(fn.advance(*bags, used, kept, key, done, following, due)) == []
    assert due.value == Timestamp(micros=20_000_001), "the span of the first event is over"


def test_a_correlation_comes_back_from_its_coder() -> None:
    given = Correlated("r", "t", "low", ("a", "b"), (("u", [1, None]), ("v", "ä")), -1, 2**40, 3, ("x",), "v1")
    coder = CorrelatedCoder()
    assert coder.decode(coder.encode(given)) == given
    assert coder.is_deterministic()
    for broken in (b"", b"[]", b'["r"]', b"\xff"):
        with pytest.raises(WireError, match="not an encoded correlation"):
            coder.decode(broken)


def test_the_version_is_that_of_the_last_event() -> None:
    few = CorrelationRule("few", CorrelationKind.EVENT_COUNT, ("beat",), 10_000, ("user",), operator="lt", count=3)
    hits = [
        TimestampedValue(Hit(b'{"user": "a"}', rule_id, version), at)
        for at, (rule_id, version) in enumerate(
            [("failed", "v1"), ("failed", "v1"), ("failed", "v2"), ("beat", "v2"), ("beat", "v3")]
        )
    ]
    with BeamPipeline(options=PipelineOptions([])) as pipeline:
        stream = Stream()
        for second, each in enumerate(hits):
            stream = stream.add_elements([each]).advance_watermark_to(second + 1)
        found = pipeline | stream.advance_watermark_to_infinity() | Correlate([MANY, few])
        shown = found.correlated | beam.Map(lambda each: (each.rule_id, each.ruleset_version))
        assert_that(shown, equal_to([("many", "v2"), ("few", "v3")]))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"batches": True}, r"takes single matches, and these are batches .*: put beam.FlatMap\(lambda batch: batch\)"),
        ({"output": "message"}, 'takes matches with their messages: leave out output="message" of MatchRules'),
        ({}, "takes the hits of MatchRules, not both of its outputs"),
    ],
)
def test_what_has_no_matches_is_refused_when_the_pipeline_is_built(given: dict[str, Any], reason: str) -> None:
    pipeline = beam.Pipeline()
    hits = pipeline | beam.Create([b"{}"]) | MatchRules(RuleSet.of(()), **given)
    with pytest.raises(LocalError, match=reason):
        _ = (hits.hits if given else hits) | Correlate([MANY])


@pytest.mark.parametrize("value", [0, "5", None, float("nan")])
def test_a_refresh_needs_a_time(value: Any) -> None:
    with pytest.raises(LocalError, match=f"refresh_s is {value!r}"):
        Correlate([MANY], refresh_s=value)


def test_on_request_what_is_wrong_in_a_set_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(dumps([MANY]))
    (tmp_path / "bad.json").write_text("[")
    rules = RuleSet.from_files(str(tmp_path / "*.json"))
    groups = ToGroupsFn(rules, 30, "skip")
    groups.setup()
    assert len([*groups.process(hit(1, "failed", user="a").value)]) == 1
    with pytest.raises(RuleError, match="this is not JSON"):
        ToGroupsFn(rules, 30).setup()
    with pytest.raises(LocalError, match="on_bad_rule is 'fail'; there are keep_previous, skip"):
        Correlate(rules, on_bad_rule="fail")  # type: ignore[arg-type]


def test_a_row_with_a_field_named_body_is_an_event() -> None:
    assert event_of(beam.Row(body="text", user="u")) == {"body": "text", "user": "u"}


def test_a_message_that_is_no_event_goes_to_the_dead_letters() -> None:
    with clean_cluster() as cluster:
        _correlate_deep(cluster)
        letters = cluster.records("dead")
    assert sorted(len(each.body) for each in letters) == [3, 120_001]


def _correlate_deep(cluster: InMemoryCluster) -> None:
    cluster.create_topic("dead", 1)
    deep = Hit(b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "failed")
    hits = [TimestampedValue(deep, 1), hit(2, "failed", user="a"), TimestampedValue(Hit(b"[1]", "failed"), 3)]
    with BeamPipeline(options=PipelineOptions([])) as pipeline:
        factory = InMemoryClientFactory(cluster.name)
        correlate = Correlate([replace(MANY, count=1)], dead_letter_topic="dead", client_factory=factory)
        found = pipeline | beam.Create(hits) | "Hits" >> beam.Map(lambda each: each) | correlate
        assert_that(found.correlated | beam.Map(lambda each: each.number), equal_to([1]))
        reasons = found.errors | "Reasons" >> beam.Map(lambda failure: failure.reason)
        wanted = ["the body is nested too deep", "the body is JSON, but not an object: a list"]
        assert_that(reasons, equal_to(wanted), label="reasons")
