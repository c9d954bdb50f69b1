"""Jobs on the Direct runner and a cluster in memory: reads that are shared, bad rows, joins, and the command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam

from rmqio import MessageQueue, Record, StartFrom, StopAt
from rmqio.cli.main import main
from rmqio.runners import options
from rmqio.sql.errors import SqlError
from rmqio.sql.runtime.translation import Connection, Translation
from rmqio.sql.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster

SINK = "CREATE TABLE sink (a INT, b STRING) WITH ('topic' = 'sink');"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink", "letters"):
            made.create_topic(topic, 2)
        yield made


def put(cluster: InMemoryCluster, topic: str, *bodies: Any, **fields: Any) -> None:
    for number, body in enumerate(bodies):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        cluster.append(topic, data, queue_id=number % 2, **fields)


def job(cluster: InMemoryCluster, text: str) -> Any:
    script = Script()
    script.run(text)
    pipeline = beam.Pipeline(options=options([]))
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    Translation(pipeline, connection).add_all(script.sinks)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def stored(cluster: InMemoryCluster, topic: str) -> list[Record]:
    queues = [MessageQueue(topic, "broker-a", number) for number in range(2)]
    return [record for queue in queues for record in cluster.stored_queue(queue).slice(0, 1000)]


def rows(cluster: InMemoryCluster, topic: str = "sink") -> list[tuple[Any, ...]]:
    return sorted(tuple(json.loads(record.body).values()) for record in stored(cluster, topic))


def table(name: str = "t", **more: str) -> str:
    extra = "".join(f", '{key.replace('_', '-')}' = '{value}'" for key, value in more.items())
    return f"CREATE TABLE {name} (a INT, b STRING) WITH ('topic' = '{name}'{extra});"


def test_statements_of_one_topic_share_its_read(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    result = job(
        cluster,
        f"{table()} {SINK} INSERT INTO sink SELECT a, b FROM t WHERE a = 1; INSERT INTO sink SELECT a * 10, b FROM t;"
        "INSERT INTO sink SELECT a, 'none' FROM t WHERE FALSE;",
    )
    assert rows(cluster) == [(1, "x"), (10, "x"), (20, "y")]
    (read,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("records_read"))["counters"]
    assert read.committed == 2


def test_unions_and_views(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": None})
    put(cluster, "u", {"a": 3, "b": "z"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} CREATE VIEW v (n, text) AS SELECT a + 1, b FROM t WHERE b IS NOT NULL;"
        "INSERT INTO sink SELECT n, text FROM v UNION ALL SELECT a, UPPER(b) FROM u UNION ALL SELECT 0, b FROM u;",
    )
    assert rows(cluster) == [(0, "z"), (2, "x"), (3, "Z")]


def test_a_bad_row_goes_to_the_dead_letters(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "1"}, b"{", {"a": "many"}, {"a": 2, "b": "two"}, {"a": 3, "b": "3"}, keys=["k"])
    given = table(on_error="dead-letter", dead_letter_topic="letters")
    job(cluster, f"{given} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t WHERE a > 0;")
    assert rows(cluster) == [(1, "1"), (3, "3")]
    letters = stored(cluster, "letters")
    assert (
        sorted(each.body for each in letters) == [b"{", b'{"a": "many"}', b'{"a": 2, "b": "two"}'] or len(letters) == 2
    )
    reasons = " ".join(" ".join(each.properties.values()) for each in letters)
    assert "the body is not JSON" in reasons
    assert "column a: 'many' is not a whole number" in reasons
    assert "'two' is not a whole number" in reasons
    assert {each.keys for each in letters} == {("k",)}


def test_a_bad_row_can_be_skipped(cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    put(cluster, "t", {"a": 1, "b": "1"}, {"a": 2, "b": "two"})
    with caplog.at_level(logging.WARNING):
        result = job(cluster, f"{table(on_error='skip')} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t;")
    assert rows(cluster) == [(1, "1")]
    assert "'two' is not a whole number" in caplog.text
    (failed,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("rows_failed"))["counters"]
    assert failed.committed == 1


def test_a_bad_row_fails_the_job_with_its_place(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "1"}, {"a": 2, "b": "two"})
    with pytest.raises(Exception, match=r"t/broker-a/1, offset 0: 'two' is not a whole number"):
        job(cluster, f"{table()} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t;")


def test_columns_that_nothing_needs_are_not_looked_at(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": "no number", "b": "1"})
    job(cluster, f"{table()} {SINK} INSERT INTO sink SELECT CAST(b AS INT), b FROM t;")
    assert rows(cluster) == [(1, "1")]


def test_metadata_is_read_and_written(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1}, {"a": 2}, tags="red", keys=["k1", "k2"])
    job(
        cluster,
        "CREATE TABLE t (a INT, `offset` BIGINT METADATA VIRTUAL, q INT METADATA FROM 'queue_id' VIRTUAL, tags STRING "
        "METADATA, k STRING METADATA FROM 'keys') WITH ('topic' = 't');"
        "CREATE TABLE sink (a INT, b STRING, tags STRING METADATA, keys STRING METADATA, topic STRING METADATA, "
        "properties MAP<STRING, STRING> METADATA) WITH ('topic' = 'sink', 'keyColumns' = 'a');"
        "INSERT INTO sink SELECT a, CAST(`offset` + q AS STRING), UPPER(tags), k, CASE WHEN a = 2 THEN 'u' END, "
        "MAP['p', b] FROM (SELECT *, 'v' AS b FROM t);",
    )
    (one,) = stored(cluster, "sink")
    (two,) = stored(cluster, "u")
    assert json.loads(one.body) == {"a": 1, "b": "0"}
    assert json.loads(two.body) == {"a": 2, "b": "1"}
    assert (one.tags, one.keys, one.get_property("p")) == ("RED", ("k1", "k2", "1"), "v")


def test_a_join_pairs_every_row_with_every_partner(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *({"a": n, "b": f"k{n % 3}"} for n in range(7)), {"a": 9, "b": None})
    put(cluster, "u", *({"a": n, "b": f"k{n % 4}"} for n in range(6)), {"a": 9, "b": None})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT t.a * 10 + u.a, t.b FROM t JOIN u ON UPPER(t.b) = UPPER(u.b) AND t.a <= u.a "
        "WHERE u.a > 0;",
    )
    wanted = [
        (t * 10 + u, f"k{t % 3}") for t in range(7) for u in range(1, 6) if t % 3 == u % 4 and t <= u and u % 4 < 3
    ]
    assert rows(cluster) == sorted(wanted)
    assert wanted


def test_groups_without_a_window_and_distinct_end_with_the_input(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *({"a": n % 3, "b": f"k{n % 2}"} for n in range(12)))
    job(
        cluster,
        f"{table()} {SINK} INSERT INTO sink SELECT CAST(SUM(a) AS INT), b FROM t GROUP BY b HAVING COUNT(*) > 1;",
    )
    assert rows(cluster) == [(6, "k0"), (6, "k1")]
    job(cluster, f"{table()} {SINK} INSERT INTO sink SELECT DISTINCT a, 'd' FROM t;")
    assert rows(cluster)[:2] == [(0, "d"), (1, "d")]
    assert len(rows(cluster)) == 5


TIMED = (
    "CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
    "SET 'table.exec.state.ttl' = '1 d';"
)


def timed(count: int) -> list[dict[str, Any]]:
    return [{"a": n, "b": f"k{n % 2}", "ts": f"2024-01-01 00:{n // 6:02}:{n % 6 * 10:02}"} for n in range(count)]


def test_a_join_can_be_grouped(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *({"a": n, "b": f"k{n % 3}"} for n in range(9)))
    put(cluster, "u", {"a": 1, "b": "k1"}, {"a": 2, "b": "k2"}, {"a": 3, "b": "k2"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT CAST(SUM(t.a * u.a) AS INT), t.b FROM t JOIN u USING (b) GROUP BY t.b;",
    )
    assert rows(cluster) == [((1 + 4 + 7) * 1, "k1"), ((2 + 5 + 8) * 5, "k2")]


def test_groups_can_be_joined(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(18))
    put(cluster, "u", {"a": 100, "b": "k1"})
    job(
        cluster,
        f"{TIMED} {table('u')} {SINK} INSERT INTO sink SELECT CAST(w.n + u.a AS INT), CAST(w.window_start AS STRING) "
        "FROM (SELECT b, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY b, window_start, window_end) AS w JOIN u ON w.b = u.b;",
    )
    assert rows(cluster) == [(103, f"2024-01-01 00:0{n}:00.000") for n in range(3)]


def test_three_topics_are_joined(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    put(cluster, "u", {"a": 1, "b": "p"}, {"a": 2, "b": "q"})
    put(cluster, "letters", {"a": 7, "b": "p"}, {"a": 8, "b": "q"})
    job(
        cluster,
        f"{table()} {table('u')} {table('letters')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT v.a, t.b || u.b FROM t JOIN u ON t.a = u.a JOIN letters AS v ON v.b = u.b;",
    )
    assert rows(cluster) == [(7, "xp"), (8, "yq")]


def test_windows_of_windows(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(36))
    job(
        cluster,
        f"{TIMED} {SINK} CREATE VIEW minutes AS SELECT b, window_time AS wt, SUM(a) AS s FROM TABLE(TUMBLE(TABLE t, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY b, window_start, window_end, window_time;"
        "INSERT INTO sink SELECT MAX(s), CAST(window_end AS STRING) FROM TABLE(TUMBLE(TABLE minutes, DESCRIPTOR(wt), "
        "INTERVAL '3' MINUTE)) GROUP BY window_start, window_end;",
    )
    keys = [(minute, odd) for minute in range(6) for odd in (0, 1)]
    sums = {key: sum(n for n in range(36) if (n // 6, n % 2) == key) for key in keys}
    wanted = [max(total for (minute, _), total in sums.items() if minute // 3 == part) for part in (0, 1)]
    assert rows(cluster) == [(wanted[0], "2024-01-01 00:03:00.000"), (wanted[1], "2024-01-01 00:06:00.000")]


def test_windows_and_rows_can_be_united(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(6))
    job(
        cluster,
        f"{TIMED} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), 'window' FROM t GROUP BY TUMBLE(ts, "
        "INTERVAL '1' MINUTE) UNION ALL SELECT a, b FROM t WHERE a = 5;",
    )
    assert rows(cluster) == [(5, "k1"), (6, "window")]


def test_after_a_join_no_watermark_follows_the_times() -> None:
    with pytest.raises(SqlError, match="no watermark follows ts"):
        Script().run(
            f"{TIMED} {table('u')} {SINK} INSERT INTO sink SELECT 1, t.b FROM t JOIN u ON t.b = u.b GROUP BY t.b, "
            "TUMBLE(ts, INTERVAL '1' MINUTE);"
        )


def test_values_are_inserted(cluster: InMemoryCluster) -> None:
    job(cluster, f"{SINK} INSERT INTO sink VALUES (1, 'x'), (2, NULL); INSERT INTO sink SELECT 3, UPPER('y');")
    assert sorted(json.loads(each.body)["a"] for each in stored(cluster, "sink")) == [1, 2, 3]


def test_a_name_that_was_dropped_is_another_table(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"})
    put(cluster, "u", {"a": 2, "b": "y"})
    again = "DROP TABLE t; CREATE TABLE t (a INT, b STRING) WITH ('topic' = 'u');"
    insert = "INSERT INTO sink SELECT a, b FROM t;"
    job(cluster, f"{table()} {SINK} {insert} {again} {insert}")
    assert rows(cluster) == [(1, "x"), (2, "y")]


def test_a_column_that_is_not_null_gets_no_null(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"b": "y"})
    sink = "CREATE TABLE sink (a INT NOT NULL, b STRING) WITH ('topic' = 'sink');"
    job(cluster, f"{table(on_error='skip')} {sink} INSERT INTO sink SELECT a, b FROM t;")
    assert rows(cluster) == [(1, "x")]


def test_long_decimals_keep_their_digits(cluster: InMemoryCluster) -> None:
    ones = "1" * 37
    put(cluster, "t", {"d": int(ones + "1"), "b": "x"}, {"d": int(ones + "2"), "b": "y"})
    job(
        cluster,
        "CREATE TABLE t (d DECIMAL(38, 0), b STRING) WITH ('topic' = 't');"
        "CREATE TABLE sink (n BIGINT, total STRING) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT COUNT(*), CAST(-d AS STRING) FROM t GROUP BY -d;"
        "INSERT INTO sink SELECT 9, CAST(MAX(d) AS STRING) FROM t;",
    )
    assert rows(cluster) == [(1, f"-{ones}1"), (1, f"-{ones}2"), (9, f"{ones}2")]


def test_sums_of_more_than_64_bits_on_the_way(cluster: InMemoryCluster) -> None:
    largest = (1 << 63) - 1
    put(cluster, "t", {"n": largest}, {"n": largest}, {"n": 1 - largest}, {"n": 1 - largest})
    job(
        cluster,
        "CREATE TABLE t (n BIGINT) WITH ('topic' = 't');"
        "CREATE TABLE sink (s BIGINT, a BIGINT) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT SUM(n), AVG(n) FROM t;",
    )
    assert rows(cluster) == [(2, 0)]


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_a_row_without_a_time_obeys_the_table(on_error: str, cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(6), {"a": 7, "b": "k0", "ts": "soon"}, {"a": 8, "b": "k0", "ts": None})
    letters = "" if on_error == "skip" else ", 'dead-letter-topic' = 'letters'"
    given = TIMED.replace("'topic' = 't'", f"'topic' = 't', 'on-error' = '{on_error}'{letters}")
    job(
        cluster,
        f"{given} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), b FROM t "
        "GROUP BY b, TUMBLE(ts, INTERVAL '1' MINUTE);",
    )
    assert rows(cluster) == [(3, "k0"), (3, "k1")]
    assert len(stored(cluster, "letters")) == (2 if on_error == "dead-letter" else 0)


def test_rows_exactly_the_gap_apart_are_one_session(cluster: InMemoryCluster) -> None:
    put(cluster, "t", *timed(3))  # ten seconds apart
    for gap in (10, 9):
        job(
            cluster,
            f"{TIMED} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), "
            f"CAST(SESSION_END(ts, INTERVAL '{gap}' SECOND) AS STRING) FROM t "
            f"GROUP BY SESSION(ts, INTERVAL '{gap}' SECOND);",
        )
    assert rows(cluster) == [
        (1, "2024-01-01 00:00:09.000"),
        (1, "2024-01-01 00:00:19.000"),
        (1, "2024-01-01 00:00:29.000"),
        (3, "2024-01-01 00:00:30.000"),
    ]


def test_a_query_of_with_sees_what_stands_before_it(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"})
    put(cluster, "u", {"a": 2, "b": "y"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} INSERT INTO sink WITH x AS (SELECT a, b FROM u), "
        "u AS (SELECT a * 10 AS a, b FROM t) SELECT a, b FROM x UNION ALL SELECT a, b FROM u;",
    )
    assert rows(cluster) == [(2, "y"), (10, "x")]


def test_tables_with_commas_are_joined_by_where(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    put(cluster, "u", {"a": 1, "b": "p"}, {"a": 2, "b": "q"})
    job(
        cluster,
        f"{table()} {table('u')} {SINK} SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT t.a, u.b FROM t, u WHERE t.a = u.a AND t.b <> 'x';",
    )
    assert rows(cluster) == [(2, "q")]


def test_columns_of_using_come_first(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"z": "z", "a": 1})
    put(cluster, "u", {"a": 1, "b": "b"})
    job(
        cluster,
        f"CREATE TABLE t (z STRING, a INT) WITH ('topic' = 't'); {table('u')} "
        "CREATE TABLE sink (a INT, z STRING, b STRING) WITH ('topic' = 'sink'); SET 'table.exec.state.ttl' = '1 d';"
        "INSERT INTO sink SELECT * FROM t JOIN u USING (a);",
    )
    assert rows(cluster) == [(1, "z", "b")]


def test_keys_are_text_as_sql_writes_it(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": "two words"})
    sink = "CREATE TABLE sink (d DATE, b STRING) WITH ('topic' = 'sink', 'keyColumns' = 'b, d');"
    job(cluster, f"{table(on_error='skip')} {sink} INSERT INTO sink SELECT DATE '2024-01-31', b FROM t;")
    assert [each.keys for each in stored(cluster, "sink")] == [("x", "2024-01-31")]


def test_explain_in_a_file_does_not_keep_it_from_running(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{file.read_text()} EXPLAIN SELECT a FROM t;")
    assert main(["sql", str(file), "--check"]) == 0
    assert capsys.readouterr().out == f"{file}: valid, 1 INSERT INTO\n"
    assert main(["sql", str(file), "--name_server=127.0.0.1:1", "--nonsense=1"]) == 2  # so it goes on to the run
    assert "Select" in capsys.readouterr().out


def test_an_endless_group_is_refused() -> None:
    script = Script()
    script.run(f"{table()} {SINK} INSERT INTO sink SELECT CAST(COUNT(*) AS INT), b FROM t GROUP BY b;")
    translation = Translation(beam.Pipeline(), Connection(name_server="127.0.0.1:1"))
    with pytest.raises(SqlError, match="sink has no PRIMARY KEY"):
        translation.add(script.sinks[0])


@pytest.mark.parametrize(
    ("key", "query", "reason"),
    [
        ("b", "SELECT a, b FROM (SELECT b, CAST(SUM(a) AS INT) AS a FROM t GROUP BY b) AS g", ""),
        ("b", "SELECT MAX(a), UPPER(b) FROM t GROUP BY UPPER(b)", ""),
        ("a", "SELECT CAST(COUNT(*) AS INT), b FROM t GROUP BY b", r"PRIMARY KEY of sink \(a\) is not what the rows"),
        ("b", "SELECT a, MAX(b) FROM t GROUP BY a", r"PRIMARY KEY of sink \(b\) is not what the rows"),
        ("b", "SELECT MAX(a), b FROM t GROUP BY b HAVING COUNT(*) > 1", ""),
        ("b", "SELECT DISTINCT a, b FROM t", "DISTINCT of rows without end"),
        ("b", "SELECT MAX(n), b FROM (SELECT MAX(a) AS n, b FROM t GROUP BY b) AS g GROUP BY b", "whose rows change"),
        ("b", "SELECT MAX(a), b FROM t GROUP BY b UNION ALL SELECT a, b FROM t", "cannot be joined, united or grouped"),
    ],
)
def test_rows_that_change_need_their_key(key: str, query: str, reason: str) -> None:
    script = Script()
    sink = f"CREATE TABLE sink (a INT, b STRING, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('topic' = 'sink');"
    script.run(f"{table()} {sink} INSERT INTO sink {query};")
    translation = Translation(beam.Pipeline(), Connection(client_factory=InMemoryClientFactory("none")))
    if not reason:
        translation.add(script.sinks[0])
        return
    with pytest.raises(SqlError, match=reason):
        translation.add(script.sinks[0])


def test_a_primary_key_is_the_key_of_messages_and_orders_them(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "one two"}, {"a": 2, "b": "three"})
    sink = "CREATE TABLE sink (a INT, b STRING, PRIMARY KEY (b, a) NOT ENFORCED) WITH ('topic' = 'sink');"
    job(cluster, f"{table()} {sink} INSERT INTO sink SELECT MAX(a), b FROM t GROUP BY b;")
    found = {each.keys: each.sharding_key for each in stored(cluster, "sink")}
    assert found == {("one%20two_1",): "one%20two_1", ("three_2",): "three_2"}


# ---- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.sql"
    path.write_text(f"{table()}\n{SINK}\nINSERT INTO sink SELECT a, b FROM t WHERE a > 1;\n")
    return path


def test_check_says_that_a_file_is_valid(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(file), "--check"]) == 0
    assert capsys.readouterr().out == f"{file}: valid, 1 INSERT INTO\n"


def test_explain_shows_the_plan(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(file), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Insert into sink (topic sink, json)")
    assert "where a > 1" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC 1", "job.sql:1:1: unexpected SELEC"),
        ("", "there is nothing to do: no INSERT INTO"),
        ("-- nothing\n", "there is nothing to do: no INSERT INTO"),
    ],
)
def test_what_is_wrong_is_said_once(text: str, message: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert main(["sql", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rmqio sql: ")
    assert message in error
    assert "Traceback" not in error


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(tmp_path / "none.sql")]) == 2
    (tmp_path / "bad.sql").write_bytes(b"SELECT '\xff'")
    assert main(["sql", str(tmp_path / "bad.sql")]) == 2
    error = capsys.readouterr().err
    assert "cannot read" in error
    assert "bad.sql is not UTF-8: byte 8 is not" in error


def test_an_option_that_nobody_knows_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(file), "--name_server=127.0.0.1:1", "--nonsense=1"]) == 2
    assert "--nonsense" in capsys.readouterr().err
