"""detect.py, on a broker on loopback ports."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")
pytest.importorskip("lark", reason="files of rules can hold conditions of SQL")

from rmqio.model import Message, Record
from rmqio.rules import Match, alert_message
from rmqio.serde.json_objects import object_of
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.programs import main_of

RULES = [{"id": "slow", "title": "Slow", "level": "low", "condition": {"field": "ms", "is": "greater", "value": 90}}]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        for topic in ("events", "hits", "dead", "rules"):
            broker.cluster.create_topic(topic, 1)
        for body in (b'{"ms": 91}', b"{", b'{"ms": 90}'):
            broker.cluster.append("events", body, queue_id=0)
        yield broker


def command(broker: FakeBroker, *more: str) -> list[str]:
    topics = ["--source_topic=events", "--sink_topic=hits"]
    return [f"--name_server={broker.name_server}", *topics, "--stop=latest", *more]


def bodies_of(broker: FakeBroker, topic: str) -> list[Any]:
    return [json.loads(record.body) for record in broker.cluster.records(topic)]


def test_a_hit_says_what_matched_and_where(
    broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*RULES, {"id": "bad", "condition": {"field": "ms", "is": "graeter", "value": 1}}]))
    flags = (f"--rules={path}", "--on_bad_rule=skip", "--dead_letter_topic=dead")
    assert main_of("detect")(command(broker, *flags)) == 0
    (hit,) = bodies_of(broker, "hits")
    assert len(hit.pop("rules_version")) == 16
    place = {name: hit.pop(name) for name in ("topic", "broker", "queue", "offset")}
    assert place["topic"] == "events"
    assert hit == {
        "rule": "slow", "title": "Slow", "level": "low", "tags": [], "event": {"ms": 91},
        "conditions": [{"field": "ms", "condition": "greater 90", "value": 91}],
    }  # fmt: skip
    (letter,) = broker.cluster.records("dead")
    assert letter.body == b"{"
    assert capsys.readouterr().out == "detect.py: 3 events read, 1 alert written, 1 dead letter\n"


def test_rules_see_columns_of_a_table(broker: FakeBroker, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
    rules = [{"id": "ours", "condition": {"field": "of_owner", "is": "equals", "value": "us"}}]
    (tmp_path / "a.json").write_text(json.dumps(rules))
    (tmp_path / "owners.csv").write_text("took,since,owner\n91,2024-01-31,us\n92,2024-02-01,them\n")
    broker.cluster.append("events", b'{"ms": "91"}', queue_id=0)
    flags = [f"--rules={tmp_path}/a.json", f"--enrich={tmp_path}/owners.csv", "--enrich_key=ms=took"]
    flags += ["--enrich_types=took=int64,since=date32", "--enrich_columns=owner,since", "--enrich_prefix=of_"]
    flags += [f"--enrich_cache_dir={tmp_path}/cache", "--dead_letter_topic=dead"]
    assert main_of("detect")(command(broker, *flags)) == 0
    (hit,) = bodies_of(broker, "hits")
    assert hit["event"] == {"ms": 91, "of_owner": "us", "of_since": "2024-01-31"}
    assert (hit["topic"], hit["queue"], hit["offset"]) == ("events", 0, 0)
    assert sorted(each.body for each in broker.cluster.records("dead")) == [b"{", b'{"ms": "91"}']


def deep(levels: int) -> bytes:
    return b'{"ms": 99, "a": ' + b'{"a": ' * levels + b"1" + b"}" * (levels + 1)


@pytest.mark.parametrize("table", [b"", b"took,since,owner\n99,2024-01-31,us\n"])
def test_a_body_is_an_event_with_a_table_and_without(table: bytes, broker: FakeBroker, tmp_path: Path) -> None:
    bodies = [
        b'{"ms": 99, "a": NaN}', b'\xef\xbb\xbf{"ms": 99}', b'{"ms": 99, "a": "\\ud800"}', b"null",
        '{"ms": 99}'.encode("utf-16"), b'{"ms": 99, "a": "\xed\xa0\x80"}', b'{"ms": 99, "a": "\xff"}',
        b'{"ms": 1e999, "a": "\\ud800"}',
        deep(50_000), b'{"ms": 99, "a": 1e999}', b'{"ms": 99, "a": %b}' % (b"9" * 5_000), deep(600), b'{"ms": 99}',
    ]  # fmt: skip
    for body in bodies:
        broker.cluster.append("events", body, queue_id=0)
    (tmp_path / "a.json").write_text(json.dumps(RULES))
    flags = [f"--rules={tmp_path}/a.json", "--dead_letter_topic=dead"]
    if table:
        pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
        (tmp_path / "owners.csv").write_bytes(table)
        flags += [f"--enrich={tmp_path}/owners.csv", "--enrich_key=ms=took", "--enrich_types=took=int64,since=date32"]
        flags += [f"--enrich_cache_dir={tmp_path}/cache"]
    assert main_of("detect")(command(broker, *flags)) == 0
    assert sorted(each.body for each in broker.cluster.records("dead")) == sorted([b"{", *bodies[:9]])
    hits = [object_of(each.body) for each in broker.cluster.records("hits")]  # Python's decoder refuses the long number
    assert sorted(each["offset"] for each in hits) == [0, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ([], "give either --rules or --rules_topic"),
        (["--rules=nothing.json", "--rules_topic=rules"], "give either --rules or --rules_topic"),
        (["--rules=bad.json"], "bad.json"),
        (["--rules=no/*.yml"], "no/*.yml: there is no such file of rules"),
        (["--rules=good.json", "--enrich=a.csv"], "--enrich needs --enrich_key, the field of the event that is"),
        (["--rules=good.json", "--enrich_key=ms"], "--enrich_key needs --enrich, the files of the table"),
        (["--rules=good.json", "--enrich=a.csv", "--enrich=b.parquet", "--enrich_key=ms"], "files of one format"),
        (["--rules=good.json", "--enrich=a.csv", "--enrich_key=ms", "--enrich_types=ms"], "pairs such as id=int64"),
        (["--rules=good.json", "--enrich=a.parquet", "--enrich_key=ms", "--enrich_types=ms=int64"], "is for CSV"),
    ],
)
def test_wrong_usage_is_refused(
    broker: FakeBroker,
    flags: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("[{")
    Path("good.json").write_text(json.dumps(RULES))
    assert main_of("detect")(command(broker, *flags)) == 2
    assert error in capsys.readouterr().err


def hit_of(event: Any, **values: Any) -> Any:
    """The hit of a body, or of a dict that columns of a table were added to, strictly as JSON."""
    body = event if isinstance(event, bytes) else b""
    record = Record("events", "broker-a", 3, 7, body, 1, 2, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)
    atoms = tuple((name, "exists", value) for name, value in values.items())
    return alert_message(Match(record if body else event, "r", "", "high", (), "v", atoms), record.queue, 7)


def test_a_rule_whose_id_is_a_title_makes_a_key() -> None:
    record = Record("events", "broker-a", 3, 7, b"{}", 1, 2, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)
    hit = alert_message(Match(record, "A shell\u3000起", "", "high", (), "v", ()), record.queue, 7)
    assert hit.keys == ("A%20shell%E3%80%80起",)
    assert parsed(hit)["rule"] == "A shell\u3000起"


def parsed(message: Message) -> Any:
    return json.loads(message.body, parse_constant=pytest.fail)


def nested(depth: int) -> Any:
    event: Any = {}
    for _ in range(depth):
        event = {"a": event}
    return event


def test_an_event_that_is_too_large_or_too_deep_is_left_out_of_its_hit() -> None:
    assert parsed(hit_of(b'{"a": 1}'))["event"] == {"a": 1}
    assert parsed(hit_of(b'{"a": "\\udcff"}'))["event"] == {"a": "\udcff"}
    for event in (b'{"a": [' + b"1, " * 2_000_000 + b"1]}", nested(10_000), {"a": 10**5_000}):
        found = parsed(hit_of(event))
        assert (found["event_left_out"], found["offset"]) == (True, 7)
        assert "event" not in found


def test_the_event_of_a_hit_is_as_it_was(broker: FakeBroker, tmp_path: Path) -> None:
    """Python's decoder refuses the number: such an event would stop the job again and again."""
    body = b'{"ms": 91.50,\n "b": %b, "c": 1e999}' % (b"9" * 5_000)
    broker.cluster.append("events", body, queue_id=0)
    (tmp_path / "a.json").write_text(json.dumps(RULES))
    assert main_of("detect")(command(broker, f"--rules={tmp_path}/a.json")) == 0
    _, hit = broker.cluster.records("hits")
    assert hit.body.endswith(b'"event":%b}' % body)


def test_numbers_that_json_does_not_have_are_texts() -> None:
    event = {"a": [math.inf, 1.5], "b": {"c": -math.inf, "d": math.nan}}
    found = parsed(hit_of(event, a=math.inf, b=2.5))
    assert [each["value"] for each in found["conditions"]] == ["Infinity", 2.5]
    assert found["event"] == {"a": ["Infinity", 1.5], "b": {"c": "-Infinity", "d": "NaN"}}
