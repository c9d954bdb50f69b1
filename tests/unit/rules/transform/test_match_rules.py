"""`MatchRules` in a pipeline: elements, outputs, errors, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to, is_empty
from apache_beam.transforms.error_handling import ErrorHandler

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio import Batch, Message, Record
from rmqio.errors import LocalError
from rmqio.rules.alerts import alert_id
from rmqio.rules.ir import Atom, Kind, Rule
from rmqio.rules.transform import Match, MatchCoder, MatchedMessage, MatchedMessageCoder, MatchRules
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster, read

LOW = Rule("low", Atom("a", Kind.GREATER, 1), "Low", "low", ("t1",))
HIGH = Rule("high", Atom("a", Kind.GREATER, 2), "High", "high")
ALSO = Rule("also", Atom("a", Kind.GREATER, 2), "Also", "high")


@dataclass(frozen=True)
class Fixed:
    """Rules that never change."""

    rules: tuple[Rule, ...] = (LOW, HIGH, ALSO)

    def load(self) -> tuple[Rule, ...]:
        return self.rules

    def signature(self) -> str:
        return "1"


class Event(NamedTuple):
    a: int


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


@pytest.fixture
def rules(tmp_path: Any) -> Any:
    """`MatchRules` with the folder of this test."""
    return lambda *given, **more: MatchRules(*(given or (Fixed(),)), cache_folder=str(tmp_path / "cache"), **more)


def test_each_kind_of_element_is_looked_at(rules: Any) -> None:
    elements = [b'{"a": 3}', '{"a": 3}', {"a": 3}, Event(3), beam.Row(a=3), Message(b'{"a": 3}'), b'{"a": 0}', {"b": 3}]
    with beam.Pipeline(FnApiRunner()) as pipeline:
        hits, errors = pipeline | beam.Create(elements, reshuffle=False) | rules()
        found = hits | beam.Map(lambda match: (type(match.message).__name__, match.rule_id))
        kinds = ("bytes", "str", "dict", "Event", "Row", "Message")
        wanted = [(kind, rule) for kind in kinds for rule in ("low", "high", "also")]
        assert_that(found, equal_to(wanted))
        assert_that(errors, is_empty(), "no errors")


def deep() -> Any:
    made: Any = {}
    for _ in range(2_000):
        made = {"b": made}
    return made


def test_rows_are_opened_wherever_they_stand(rules: Any) -> None:
    elements = [{"x": [{"y": beam.Row(a=Event(3))}]}, beam.Row(x={"y": {"a": {"a": 2}}}), {"x": {"y": {"a": 1}}}]
    ruleset = Fixed((Rule("in", Atom("x.y.a.a", Kind.GREATER, 1)),))
    with beam.Pipeline(FnApiRunner()) as pipeline:
        hits, errors = pipeline | beam.Create([0]) | beam.FlatMap(lambda _: [*elements, deep()]) | rules(ruleset)
        assert_that(hits | beam.Map(lambda match: match.atoms[0][2]), equal_to([3, 2]))
        assert_that(
            errors | beam.Map(lambda failure: failure.reason), equal_to(["the body is nested too deep"]), "deep"
        )


@pytest.mark.parametrize(
    ("which", "wanted"), [("all", ["low", "high", "also"]), ("first", ["low"]), ("best", ["high"])]
)
def test_a_match_says_everything(rules: Any, which: str, wanted: list[str]) -> None:
    with beam.Pipeline(FnApiRunner()) as pipeline:
        hits, _ = pipeline | beam.Create([b'{"a": 3}']) | rules(match=which)
        assert_that(hits | beam.Map(lambda match: match.rule_id), equal_to(wanted), "ids")
        (low,) = (each for each in (LOW, HIGH) if each.id == wanted[0])
        atoms = (("a", f"greater {1 if low is LOW else 2}", 3),)

        def check(found: list[Match]) -> None:
            first: Any = next(each for each in found if each.rule_id == low.id)
            assert first == (b'{"a": 3}', low.id, low.title, low.level, low.tags, first.ruleset_version, atoms)
            assert len(first.ruleset_version) == 16

        assert_that(hits, check, "fields")


def test_a_message_comes_with_all_its_matches(rules: Any) -> None:
    with beam.Pipeline(FnApiRunner()) as pipeline:
        hits, _ = pipeline | beam.Create([{"a": 3}, {"a": 2}, {"a": 1}]) | rules(output="message")
        found = hits | beam.Map(lambda each: (each.message["a"], [match.rule_id for match in each.matches]))
        assert_that(found, equal_to([(3, ["low", "high", "also"]), (2, ["low"])]))


def test_batches_keep_places_and_bad_members_go_alone(cluster: InMemoryCluster, rules: Any) -> None:
    cluster.create_topic("t", 1)
    bodies = [b'{"a": 0}', b"{", b'{"a": 3}', b"\xff", b'{"a": 2}', b"[]"]
    for body in bodies:
        cluster.append("t", body, queue_id=0)

    def check(found: list[Any]) -> None:
        values = [
            (value.rule_id, offset) for batch in found for value, offset in zip(batch, batch.offsets, strict=True)
        ]
        assert values == [("low", 2), ("high", 2), ("also", 2), ("low", 4)]
        assert all(isinstance(batch, Batch) and isinstance(batch[0].message, Record) for batch in found)
        ids = [one for batch in found for one in batch.ids()]
        assert len({*ids}) == 4

    with beam.Pipeline(FnApiRunner()) as pipeline:
        hits, errors = pipeline | read(cluster, batches=True) | rules()
        assert_that(hits, check, "hits")
        wanted = [
            (1, b"{", "the body is not JSON: Input data was truncated"),
            (3, b"\xff", "the body is not UTF-8: byte 0"),
            (5, b"[]", "the body is JSON, but not an object: a list"),
        ]
        found = errors | beam.Map(lambda failure: (failure.queue_offset, failure.body, failure.reason))
        assert_that(found, equal_to(wanted), "errors")


def _ids(cluster: InMemoryCluster, matching: MatchRules, path: Path) -> dict[tuple[str, int], str]:
    """The ids of alerts by rule and offset, when some rules run over the topic. A function of Beam writes to a file."""

    def take(batches: list[Any]) -> None:
        for batch in batches:
            assert batch.ids() == [batch.id_at(place) for place in range(len(batch))]
            assert batch.ids() == [alert_id(each, batch.steps) for each in batch]
            keys = [(each.rule_id, offset) for each, offset in zip(batch, batch.offsets, strict=True)]
            with path.open("a") as file:
                file.writelines(f"{rule} {offset} {id}\n" for (rule, offset), id in zip(keys, batch.ids(), strict=True))

    with beam.Pipeline(FnApiRunner()) as pipeline:
        hits, _ = pipeline | read(cluster, batches=True) | "Rules" >> matching
        assert_that(hits, take, "hits")
    rows = [line.split() for line in path.read_text().splitlines()]
    return {(rule, int(offset)): id for rule, offset, id in rows}


def test_a_rule_that_is_added_leaves_the_ids_of_other_alerts(
    cluster: InMemoryCluster, rules: Any, tmp_path: Path
) -> None:
    """Whoever drops duplicates by id would otherwise see an old alert twice, or lose a new one."""
    cluster.create_topic("t", 1)
    for body in (b'{"a": 3}', b'{"a": 2}'):
        cluster.append("t", body, queue_id=0)
    first = Rule("first", Atom("a", Kind.GREATER, 0))
    before = _ids(cluster, rules(Fixed((LOW, ALSO))), tmp_path / "before")
    after = _ids(cluster, rules(Fixed((first, LOW, HIGH, ALSO))), tmp_path / "after")
    assert before.keys() == {("low", 0), ("also", 0), ("low", 1)}
    assert {key: after[key] for key in before} == before
    assert len({*after.values()}) == len(after) == 6


def test_an_alert_without_a_place_has_no_id() -> None:
    with pytest.raises(LocalError, match="the match of rule r has dict as message, which has no place"):
        alert_id(Match({}, "r", "", "low", (), "v", ()))


def test_errors_go_to_a_handler_and_to_dead_letters(cluster: InMemoryCluster, rules: Any) -> None:
    cluster.create_topic("dead", 1)
    given = {"dead_letter_topic": "dead", "client_factory": InMemoryClientFactory(cluster.name)}
    with beam.Pipeline(FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(lambda failure: failure.reason)) as handler:
            hits, _ = pipeline | beam.Create([b"{", b'{"a": 2}']) | rules(**given).with_error_handler(handler)
        assert_that(handler.output(), equal_to(["the body is not JSON: Input data was truncated"]), "handled")
        assert_that(hits | beam.Map(lambda match: match.rule_id), equal_to(["low"]), "hits")
    (record,) = cluster.records("dead")
    assert record.body == b"{"


def test_metrics_count_by_rule(rules: Any) -> None:
    pipeline = beam.Pipeline(FnApiRunner())
    _ = pipeline | beam.Create([b'{"a": 3}', b'{"a": 2}', b"{"]) | rules()
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio.rules"))["counters"]
    found = {each.key.metric.name: each.committed for each in counters}
    assert found == {
        "events": 3, "broken": 1, "matches": 4, "matches_of.low": 2, "matches_of.high": 1, "matches_of.also": 1,
    }  # fmt: skip


@pytest.mark.parametrize("message", [b"body", {"a": [1, None, "x"]}, "text"])
def test_coders_give_back_what_they_got(message: Any) -> None:
    match = Match(message, "id", "title", "high", ("a", "b"), "v", (("a", "equals 1", 1), ("b", "is_null", None)))
    assert MatchCoder().decode(MatchCoder().encode(match)) == match
    whole = MatchedMessage(message, "v", (match._replace(message=None),))
    assert MatchedMessageCoder().decode(MatchedMessageCoder().encode(whole)) == whole


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"match": "any"}, "match is 'any'; there are all, first, best"),
        ({"refresh_s": 0}, "refresh_s is 0; it must be a number of seconds above 0"),
        ({"on_bad_rule": "drop"}, "on_bad_rule is 'drop'; there are keep_previous, skip, fail"),
        ({"output": "x"}, "output is 'x'; there are match, message"),
        ({"max_value_bytes": 0}, "max_value_bytes is 0; it must be a number of at least 1"),
        ({"limits": {"max_rules": 5}}, "limits is dict; it must be Limits"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(LocalError, match=error):
        MatchRules(Fixed(), **given)


def test_what_is_no_event_is_refused(rules: Any) -> None:
    with pytest.raises(Exception, match="MatchRules takes bodies of JSON, Records, dicts, Rows and named tuples"):
        with beam.Pipeline(FnApiRunner()) as pipeline:
            _ = pipeline | beam.Create([1]) | rules()
