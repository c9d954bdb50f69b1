"""`rmqio copy`: copies between files, SQLite, the console and a cluster in memory."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
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
from rmqio.connect.copying.job import apply, copy, target_of
from rmqio.connect.copying.urls import parse_end
from rmqio.model import TOMBSTONE, Message
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

ROWS = [{"id": number, "name": f"n{number}"} for number in range(5)]


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
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ['{"name":"n3","id":"3"}', '{"name":"n4","id":"4"}']
    assert "out/*.csv is printed" in printed.err


def test_a_second_copy_with_another_number_of_shards_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would leave the files of the first one, and so each row twice."""
    assert main(["copy", "--from", "rows.jsonl", "--to", "out/?format=jsonl&shards=2"]) == 0
    before = {each.name: each.read_text() for each in (folder / "out").iterdir()}
    for _ in range(2):  # the same number replaces them
        assert main(["copy", "--from", "rows.jsonl", "--to", "out/?format=jsonl&shards=2"]) == 0
    assert main(["copy", "--from", "rows.jsonl", "--to", "out/?format=jsonl&shards=3"]) == 2
    assert re.search(
        r"out/ has part-0000\d-of-00002.jsonl, of a write with shards=2: .* Give shards=2, ", capsys.readouterr().err
    )
    assert {each.name: each.read_text() for each in (folder / "out").iterdir()} == before
    assert main(["copy", "--from", "rows.jsonl", "--to", "out/?format=csv"]) == 0, "files of another format stay apart"


def test_a_row_that_the_target_refuses_fails_the_copy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.jsonl").write_text('{"id": 1, "nmae": "x"}\n')
    assert main(["copy", "--from", "bad.jsonl", "--to", "sqlite:///shop.db#users"]) == 1
    assert capsys.readouterr().err == (
        "rmqio copy: table users of sqlite:///shop.db refuses 1 row; the first: table users has no column nmae; "
        "did you mean name?; to continue without such rows, give --dead_letter_topic\n"
    )
    assert main(["copy", "--from", "bad.jsonl", "--to", "out/?format=csv&columns=id,name"]) == 1
    assert "1 row does not fit; the first, " in (error := capsys.readouterr().err)
    assert error.endswith("did you mean name?; to continue without such rows, give --dead_letter_topic\n")


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
    producer = InMemoryClientFactory(cluster.name).producer("test")
    producer.send(Message(b"", topic="a", keys=("k", "l"), sharding_key="s", properties={"p": "1", TOMBSTONE: "true"}))
    producer.close()
    assert run("rocketmq:a", "rocketmq:b", cluster) == 0
    given, found = (
        sorted((r.message_id, r.body, *r.properties.items()) for r in cluster.records(topic)) for topic in ("a", "b")
    )
    assert found == given
    assert len(found) == 7


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
    assert "refuses 1 row; the first (a/" in error
    assert "the body is not JSON" in error


def test_a_message_that_no_file_takes_fails_the_copy_and_names_the_place(
    cluster: InMemoryCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rocketmq:a", "out/?format=csv", cluster) == 1
    error = capsys.readouterr().err
    assert re.search(
        r"folder out/ refuses 1 row; the first \(a/.*, offset \d+\): SerdeError: the body is not JSON", error
    )
    assert error.endswith("; to continue without such rows, give --dead_letter_topic\n")


def test_rows_go_to_a_topic_with_keys(cluster: InMemoryCluster, folder: Path) -> None:
    assert run("rows.jsonl", "rocketmq:b?key=id", cluster) == 0
    found = {(record.body, record.keys) for record in cluster.records("b")}
    assert found == {(b'{"id":%d,"name":"n%d"}' % (n, n), (str(n),)) for n in range(5)}


DIGITS = "12345678901234567890.0123456789"


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("rocketmq:b?id=n", f'{{"n":{DIGITS},"more":[{{"m":1e400}}]}}'),
        ("out/?format=jsonl", f'{{"n":{DIGITS},"more":[{{"m":1e400}}]}}'),
        ("out/?format=csv", f'n,more\n{DIGITS},"[{{""m"":1e400}}]"'),
        ("sqlite:///shop.db#numbers?mode=insert", f'{DIGITS} [{{"m":1e400}}]'),
    ],
)
def test_a_number_of_json_keeps_all_its_digits(
    target: str, wanted: str, cluster: InMemoryCluster, folder: Path
) -> None:
    (folder / "rows.jsonl").write_text(f'{{"n": {DIGITS}, "more": [{{"m": 1e400}}]}}\n')
    with contextlib.closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("CREATE TABLE numbers (n TEXT, more JSON)")
        assert run("rows.jsonl", target, cluster) == 0
        found = [" ".join(row) for row in connection.execute("SELECT * FROM numbers").fetchall()]
    found += [record.body.decode() for record in cluster.records("b")]
    found += ["\n".join(each.read_text().splitlines()) for each in folder.glob("out/*")]
    assert found == [wanted]
    if target.startswith("rocketmq"):
        assert [record.message_id for record in cluster.records("b")] == [DIGITS]


def test_random_ids_of_rows_are_said_with_the_option_that_makes_them_stable(
    cluster: InMemoryCluster, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run("rows.jsonl", "rocketmq:dead", cluster) == 0
    (warning,) = [each.getMessage() for each in caplog.records if "ids: random" in each.getMessage()]
    assert warning.endswith(" Add id=FIELD to the options of rocketmq:dead: a field that differs from row to row")
    caplog.clear()
    for _ in range(2):
        assert run("rows.jsonl", "rocketmq:b?id=name", cluster) == 0
    assert "random" not in caplog.text
    ids = [record.message_id for record in cluster.records("b") if not record.keys]
    assert sorted(ids) == sorted(f"n{n}" for n in (*range(5), *range(5)))


def test_a_copy_with_a_key_that_runs_again_gives_the_same_ids(cluster: InMemoryCluster, folder: Path) -> None:
    """Rows can share a key: 0 and 1 have one name, and 0 is there twice."""
    with contextlib.closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("CREATE TABLE lines (id INTEGER, name TEXT)")
        connection.executemany("INSERT INTO lines VALUES (?, ?)", [(0, "a"), (1, "a"), (2, "b"), (0, "a")])
        connection.commit()
    for _ in range(2):
        assert run("sqlite:///shop.db#lines", "rocketmq:b?key=name", cluster) == 0
    ids = [record.message_id for record in cluster.records("b")]
    assert sorted(map(ids.count, set(ids))) == [2, 2, 4]


def test_a_row_that_cannot_be_a_message_fails_the_copy_or_is_a_letter(
    cluster: InMemoryCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rows.jsonl", "rocketmq:b?key=nmae", cluster) == 1
    assert (
        "rocketmq:b cannot take a message: SerdeError: the row has no nmae that can be a key; did you mean name?; "
        "to continue without such messages, give --dead_letter_topic\n"
    ) in capsys.readouterr().err
    (folder / "rows.jsonl").write_text('{"id": 1}\n{"name": "x"}\n{"id": 2}\n')
    assert run("rows.jsonl", "rocketmq:b?key=id", cluster, dead_letter_topic="dead") == 0
    assert len(cluster.records("dead")) == 1
    assert "2 copied from rows.jsonl to rocketmq:b, 1 refused, which are in dead\n" in capsys.readouterr().out


def test_the_direct_runner_closes_no_window_of_a_stream(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rocketmq:a", "out/?format=jsonl", cluster, follow=True) == 2
    assert "to follow a topic into files, give --runner=SparkRunner" in capsys.readouterr().err


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
