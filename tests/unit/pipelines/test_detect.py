"""detect.py, on a broker on loopback ports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")
pytest.importorskip("lark", reason="files of rules can hold conditions of SQL")

from rmqio.model import Record
from rmqio.pipelines import detect
from rmqio.pipelines.detect import to_message
from rmqio.rules import Match
from rmqio.testing import FakeBroker

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


def test_a_hit_says_what_matched_and_where(broker: FakeBroker, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(RULES))
    assert detect.main(command(broker, f"--rules={path}", "--dead_letter_topic=dead")) == 0
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


def test_rules_see_columns_of_a_table(broker: FakeBroker, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
    rules = [{"id": "ours", "condition": {"field": "of_owner", "is": "equals", "value": "us"}}]
    (tmp_path / "a.json").write_text(json.dumps(rules))
    (tmp_path / "owners.csv").write_text("took,since,owner\n91,2024-01-31,us\n92,2024-02-01,them\n")
    broker.cluster.append("events", b'{"ms": "91"}', queue_id=0)
    flags = [f"--rules={tmp_path}/a.json", f"--enrich={tmp_path}/owners.csv", "--enrich_key=ms=took"]
    flags += ["--enrich_types=took=int64,since=date32", "--enrich_columns=owner,since", "--enrich_prefix=of_"]
    flags += [f"--enrich_cache_dir={tmp_path}/cache", "--dead_letter_topic=dead"]
    assert detect.main(command(broker, *flags)) == 0
    (hit,) = bodies_of(broker, "hits")
    assert hit["event"] == {"ms": 91, "of_owner": "us", "of_since": "2024-01-31"}
    assert (hit["topic"], hit["queue"], hit["offset"]) == ("events", 0, 0)
    assert sorted(each.body for each in broker.cluster.records("dead")) == [b"{", b'{"ms": "91"}']


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ([], "give either --rules or --rules_topic"),
        (["--rules=nothing.json", "--rules_topic=rules"], "give either --rules or --rules_topic"),
        (["--rules=bad.json"], "bad.json"),
        (["--rules=good.json", "--refresh_s=0"], "refresh_s is 0.0; it must be a number of seconds above 0"),
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
    assert detect.main(command(broker, *flags)) == 2
    assert error in capsys.readouterr().err


def test_an_event_that_is_too_large_or_too_deep_is_left_out_of_its_hit() -> None:
    def hit(body: bytes) -> Any:
        record = Record("events", "broker-a", 3, 7, body, 1, 2, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)
        return json.loads(to_message(Match(record, "r", "", "high", (), "v", ()), record.queue, 7).body)

    assert hit(b'{"a": 1}')["event"] == {"a": 1}
    assert hit(b'{"a": "\\udcff"}')["event"] == {"a": "\udcff"}
    for body in (b'{"a": [' + b"1, " * 2_000_000 + b"1]}", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        found = hit(body)
        assert (found["event_left_out"], found["offset"]) == (True, 7)
        assert "event" not in found
