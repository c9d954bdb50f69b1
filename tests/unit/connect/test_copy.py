"""`rmqio copy`: URLs, errors, and copies between files, SQLite, the console and a cluster in memory."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

from rmqio.cli.main import main
from rmqio.connect.copying.job import copy
from rmqio.connect.copying.messages import PrintFn, ToMessage
from rmqio.connect.copying.sinks import apply, target_of
from rmqio.connect.copying.urls import parse_end
from rmqio.errors import LocalError, SerdeError
from rmqio.model import TOMBSTONE, Message
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

ROWS = [{"id": number, "name": f"n{number}"} for number in range(5)]


@pytest.mark.parametrize(
    ("url", "kind", "place", "name", "options"),
    [
        ("rocketmq:orders", "rocketmq", "", "orders", {}),
        ("rocketmq://h:9876/orders?start=latest", "rocketmq", "h:9876", "orders", {"start": "latest"}),
        ("rocketmq://a:1;b:2/orders", "rocketmq", "a:1;b:2", "orders", {}),
        ("kafka://h:9092,i:9092/t?key=id", "kafka", "h:9092,i:9092", "t", {"key": "id"}),
        ("data/*.jsonl", "file", "data/*.jsonl", "", {}),
        ("data/?.csv", "file", "data/?.csv", "", {}),
        ("out/?format=csv&shards=2", "file", "out/", "", {"format": "csv", "shards": "2"}),
        ("file:///tmp/x.avro", "file", "/tmp/x.avro", "", {}),
        ("gs://bucket/x.parquet", "file", "gs://bucket/x.parquet", "", {}),
        ("mysql://me:pw@h/shop?charset=utf8mb4#users?mode=ignore", "mysql", "mysql://me:pw@h/shop?charset=utf8mb4",
         "users", {"mode": "ignore"}),
        ("sqlite:///x.db#SELECT a FROM b WHERE c = '?'", "sqlite", "sqlite:///x.db",
         "SELECT a FROM b WHERE c = '?'", {}),
        ("sqlite:///x.db#selections?mode=ignore", "sqlite", "sqlite:///x.db", "selections", {"mode": "ignore"}),
        ("opensearch://h:9200/orders", "opensearch", "http://h:9200", "orders", {}),
        ("elasticsearch+https://h/orders?id=n", "elasticsearch", "https://h", "orders", {"id": "n"}),
        ("-", "console", "", "", {}),
    ],
)  # fmt: skip
def test_urls(url: str, kind: str, place: str, name: str, options: dict[str, str]) -> None:
    found = parse_end(url)
    assert (found.kind, found.place, found.name, found.options) == (kind, place, name, options)
    assert "pw" not in f"{found.shown}"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("kafa://h:1/t", "-", "no system is called kafa; did you mean kafka"),
        ("rocketmq:", "-", "rocketmq:... names no topic"),
        ("kafka:t", "-", "must be like kafka://HOST:PORT/NAME"),
        ("sqlite:///x.db", "-", "names no table: add it after a #"),
        ("elasticsearch://me:pw@h/x", "-", "holds credentials"),
        ("orders", "-", "orders is neither a system"),
        ("-", "-", "console cannot be read"),
        ("opensearch://h:1/x", "-", "cannot be read: a copy goes there"),
        ("x.jsonl?formt=csv", "-", "x.jsonl has no option formt; did you mean format"),
        ("x.jsonl", "y.csv", "a copy goes to files of a folder: out/.format=csv"),
        ("x.jsonl", "out/?format=csv&shards=two", "shards is 'two'; it must be a whole number"),
        ("rocketmq:a?start=erliest", "-", "start: 'erliest' is not .*did you mean earliest"),
        ("rocketmq:a", "rocketmq:a", "is both read and written"),
        ("rocketmq://127.0.0.1:1/a", "rocketmq:a", "is both read and written"),
        ("kafka://h:1/t", "rocketmq:a?key=id", "rocketmq:a has no option key"),
        ("kafka://h:1/t", "out/?format=jsonl&lateness_s=1", "lateness_s is for a copy with --follow"),
        ("x.jsonl", "sqlite:///none.db#t?mode=merge", "mode is 'merge'"),
        ("x.jsonl", "sqlite:///x.db#t?password_env=NOT_THERE_7", "environment variable NOT_THERE_7 is not set"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_line(
    source: str, target: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert main(["copy", "--from", source, "--to", target]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pw" not in error
    assert re.search(message, error), error


def test_follow_is_for_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "--from", "x.jsonl", "--to", "-", "--follow"]) == 2
    assert "x.jsonl ends: --follow is for topics" in capsys.readouterr().err
    assert main(["copy", "--from", "x.jsonl", "--to", "-", "--folow"]) == 2
    assert "unknown option --folow" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ROWS in rows.jsonl and an empty table users in shop.db."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    connection = sqlite3.connect("shop.db")
    connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    connection.close()
    return tmp_path


def test_from_file_to_table_to_file_to_console(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # upserts
        assert main(["copy", "--from", "rows.jsonl", "--to", "sqlite:///shop.db#users"]) == 0
    assert "5 copied from rows.jsonl to sqlite:///shop.db#users" in capsys.readouterr().out
    query = "SELECT id, name FROM users WHERE id > 2"
    assert main(["copy", "--from", f"sqlite:///shop.db#{query}", "--to", "out/?format=csv&columns=name,id"]) == 0
    assert sorted((folder / "out" / "part-00000-of-00001.csv").read_text().split()) == ["n3,3", "n4,4", "name,id"]
    capsys.readouterr()
    assert main(["copy", "--from", "out/*.csv", "--to", "-"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed[:-1]) == ['{"name":"n3","id":"3"}', '{"name":"n4","id":"4"}']


def test_as_a_file_of_its_own(folder: Path) -> None:
    command = [sys.executable, "-m", "rmqio.pipelines.copy", "--from", "rows.jsonl", "--to", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6


def test_a_row_that_the_target_refuses_fails_the_copy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.jsonl").write_text('{"id": 1, "nmae": "x"}\n')
    assert main(["copy", "--from", "bad.jsonl", "--to", "sqlite:///shop.db#users"]) == 1
    assert "has no column nmae; did you mean name" in capsys.readouterr().err


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    """Topics a, b and dead. In a: ROWS with tags and keys, and one that is not JSON."""
    with InMemoryCluster() as found:
        for topic in ("a", "b", "dead"):
            found.create_topic(topic)
        producer = InMemoryClientFactory(found.name).producer("test")
        for row in ROWS:
            producer.send(Message(json.dumps(row).encode(), topic="a", tags="t", keys=(str(row["id"]),)))
        producer.send(Message(b"no JSON", topic="a"))
        producer.close()
        yield found


def run(source: str, target: str, cluster: InMemoryCluster, **options: Any) -> int:
    where = {"client_factory": InMemoryClientFactory(cluster.name)}
    ends = parse_end(source), parse_end(target)
    return copy(*ends, PipelineOptions(["--runner=DirectRunner"]), where=where, **options)


def test_a_topic_is_copied_to_a_topic_as_it_is(cluster: InMemoryCluster) -> None:
    assert run("rocketmq:a", "rocketmq:b", cluster) == 0
    given, found = ([(r.body, r.tags, r.keys) for r in cluster.records(topic)] for topic in ("a", "b"))
    assert sorted(map(str, found)) == sorted(map(str, given))
    assert len(found) == 6


def test_a_topic_goes_to_a_table_and_what_is_refused_to_the_dead_letters(
    cluster: InMemoryCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rocketmq:a", "sqlite:///shop.db#users", cluster, dead_letter_topic="dead") == 0
    assert (
        "5 copied from rocketmq:a to sqlite:///shop.db#users, 1 refused, which are in dead" in capsys.readouterr().out
    )
    (letter,) = cluster.records("dead")
    assert letter.body == b"no JSON"
    assert letter.get_property("RMQIO_ORIGIN").startswith("a/")  # type: ignore[union-attr]
    connection = sqlite3.connect("shop.db")
    assert connection.execute("SELECT id, name FROM users ORDER BY id").fetchall() == [
        (r["id"], r["name"]) for r in ROWS
    ]
    connection.close()


def test_without_dead_letters_the_copy_fails_and_names_the_place(
    cluster: InMemoryCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rocketmq:a", "sqlite:///shop.db#users", cluster) == 1
    error = capsys.readouterr().err
    assert "refuses 1 rows; the first (a/" in error
    assert "the body is not JSON" in error


def test_rows_go_to_a_topic_with_keys(cluster: InMemoryCluster, folder: Path) -> None:
    assert run("rows.jsonl", "rocketmq:b?key=id", cluster) == 0
    found = {(record.body, record.keys) for record in cluster.records("b")}
    assert found == {(b'{"id":%d,"name":"n%d"}' % (n, n), (str(n),)) for n in range(5)}


def test_a_row_that_cannot_be_a_message_fails_the_copy_or_is_a_letter(
    cluster: InMemoryCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rows.jsonl", "rocketmq:b?key=nmae", cluster) == 1
    assert "the row has no nmae that can be a key; to go on without" in capsys.readouterr().err
    assert run("rows.jsonl", "rocketmq:b?key=nmae", cluster, dead_letter_topic="dead") == 0
    assert len(cluster.records("dead")) == 5


def test_the_direct_runner_closes_no_window_of_a_stream(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rocketmq:a", "out/?format=jsonl", cluster, follow=True) == 2
    assert "to follow a topic into files, give --runner=SparkRunner" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("element", "key", "message"),
    [
        ({"id": 7}, "id", Message(b'{"id":7}', keys=("7",))),
        (b'{"a": 1}', None, Message(b'{"a":1}')),
    ],
)
def test_rows_become_messages(element: Any, key: str | None, message: Message) -> None:
    assert ToMessage(key)(element) == message


@pytest.mark.parametrize("row", [{}, {"id": None}, {"id": [1]}])
def test_a_row_without_its_key_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(SerdeError, match="the row has no id that can be a key"):
        ToMessage("id")(row)


def test_messages_of_kafka_keep_keys_headers_and_tombstones() -> None:
    from rmqio.connect import KafkaRecord

    found = ToMessage(None)(KafkaRecord(b"v", b"k", (("h", b"x"),)))
    assert found == Message(b"v", keys=("k",), sharding_key="k", properties={"h": "x"})
    assert ToMessage(None)(KafkaRecord(b"v", b"two words")).keys == ()
    assert ToMessage(None)(KafkaRecord(None, b"k")) == Message(
        b"", keys=("k",), sharding_key="k", properties={TOMBSTONE: "true"}
    )
    with pytest.raises(SerdeError, match="a tombstone of Kafka needs a key"):
        ToMessage(None)(KafkaRecord(None))


def test_a_tombstone_is_printed_as_null(capsys: pytest.CaptureFixture[str]) -> None:
    from rmqio.connect import KafkaRecord

    printing = PrintFn()
    printing.start_bundle()
    for each in (KafkaRecord(None, b"k"), KafkaRecord(b"v"), {"a": None}):
        printing.process(each)
    printing.finish_bundle()
    assert capsys.readouterr().out == 'null\nv\n{"a":null}\n'


def test_late_messages_of_a_copy_that_follows_have_a_file_of_their_own(tmp_path: Path) -> None:
    """Producers send side by side, so that at the end of each window some messages come after its watermark."""
    target = target_of(
        parse_end(f"{tmp_path}/?format=jsonl&window_s=10"), parse_end("rocketmq:a"),
        endless=True, where={}, dead_letter_topic=None,
    )  # fmt: skip

    def at(second: int) -> TimestampedValue:
        return TimestampedValue({"n": second}, second)

    stream = Stream().add_elements([at(1), at(9)]).advance_watermark_to(11).add_elements([at(8), at(12)])
    stream = stream.advance_watermark_to(3_600).add_elements([at(7)]).advance_watermark_to_infinity()
    with beam.Pipeline(options=PipelineOptions(["--streaming"])) as pipeline:
        apply(pipeline | stream, target)
    found = {
        str(each.relative_to(tmp_path)): [json.loads(line)["n"] for line in each.read_text().splitlines()]
        for each in tmp_path.rglob("part-*")
    }
    first, second = "window=19700101T000000Z-19700101T000010Z", "window=19700101T000010Z-19700101T000020Z"
    assert found == {
        f"{first}/part-00000-of-00001.jsonl": [1, 9],
        f"{first}/part-00000-of-00001-late1.jsonl": [8],
        f"{first}/part-00000-of-00001-late2.jsonl": [7],
        f"{second}/part-00000-of-00001.jsonl": [12],
    }


def test_options_are_numbers_and_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW_OF_TEST", "secret")
    end = parse_end("sqlite:///x.db#t?password_env=PW_OF_TEST")
    assert end.take("password") == {"password": "secret"}
    with pytest.raises(LocalError, match="options are like"):
        parse_end("rocketmq:t?x")
