"""Top-n and deduplication beside DuckDB, of inputs that end and of messages that update a table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("duckdb", reason="DuckDB is the oracle")

import duckdb
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.signature import changes, signature_of
from rmqio.sql.runtime import windows
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.runtime.ranks.updating import QUEUES, held, put, rows, run

TABLE = (
    "CREATE TABLE t (id INT, k STRING, v INT, d DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) "
    "WITH ('topic' = 't');"
)
# What stands in OVER, the condition, the columns that are written, their types, and the key. The order is one of all
# rows: id is theirs alone.
QUERIES = [
    ("PARTITION BY k ORDER BY v DESC, id", "rn <= 3", "k, rn, id, v", "k STRING, rn BIGINT, id INT, v INT", "k, rn"),
    ("PARTITION BY k ORDER BY v NULLS LAST, id DESC", "2 >= rn", "k, rn, id", "k STRING, rn BIGINT, id INT", "rn, k"),
    ("PARTITION BY k ORDER BY d, v DESC NULLS FIRST, id", "rn < 3", "id, k, d", "id INT, k STRING, d DOUBLE", "id, k"),
    ("ORDER BY ts DESC, id", "rn <= 4", "id, ts", "id INT, ts TIMESTAMP(3)", "id"),
    ("PARTITION BY k ORDER BY ts DESC, id", "rn = 1", "k, id, v", "k STRING, id INT, v INT", "k"),
    ("PARTITION BY k ORDER BY id DESC", "rn = 1 AND d > 0", "k, v, id", "k STRING, v INT, id INT", "k"),
    ("PARTITION BY k ORDER BY v, id", "rn = 2", "k, id", "k STRING, id INT", "k, id"),
    ("PARTITION BY k ORDER BY v, id", "rn BETWEEN 1 AND 3 AND v > 0", "k, rn, id", "k STRING, rn BIGINT, id INT",
     "k, rn"),
]  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink", *(f"sink{number}" for number in range(len(QUERIES)))):
            made.create_topic(topic, QUEUES)
        yield made


def sink(columns: str, key: str = "", number: int | str = "") -> str:
    primary = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    return f"CREATE TABLE sink{number} ({columns}{primary}) WITH ('topic' = 'sink{number}');"


def ranked(over: str, where: str, columns: str, table: str = "t") -> str:
    return f"SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER ({over}) AS rn FROM {table}) AS r WHERE {where}"


def some_rows(random: Random, count: int, keys: Sequence[str | None]) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "k": random.choice(keys),
            "v": random.choice([None, *range(-3, 4)]),
            "d": random.choice([None, -1.5, 0.0, 2.25]),
            "ts": f"2024-01-01 00:00:{random.randrange(60):02}",
        }
        for number in range(count)
    ]


def wanted(found: list[dict[str, Any]], query: str) -> list[tuple[Any, ...]]:
    """The rows of a query by DuckDB, as they are in messages."""
    with duckdb.connect() as oracle:
        oracle.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        oracle.execute("CREATE TABLE t (id INT, k VARCHAR, v INT, d DOUBLE, ts TIMESTAMP)")
        oracle.executemany("INSERT INTO t VALUES ($id, $k, $v, $d, $ts)", found)
        selected = oracle.execute(query).fetchall()
    return sorted((tuple(map(as_written, each)) for each in selected), key=repr)


def as_written(value: Any) -> Any:
    return str(value) if isinstance(value, dt.datetime) else value


@pytest.mark.parametrize("endless", [False, True], ids=["ends", "endless"])
def test_first_rows_are_those_of_duckdb(endless: bool, cluster: InMemoryCluster) -> None:
    """Each row of an input that ends comes once; of one that does not, the newest row of each key counts."""
    keys = ["a", "None", None] if endless else ["a", "b", None]
    found = some_rows(Random(endless), 150, keys)
    put(cluster, "t", found)
    statements = [TABLE]
    for number, (over, where, columns, types, key) in enumerate(QUERIES):
        statements.append(sink(types, key if endless else "", number))
        statements.append(f"INSERT INTO sink{number} {ranked(over, where, columns)};")
    run(cluster, "".join(statements), endless=endless)
    for number, (over, where, columns, _, _) in enumerate(QUERIES):
        given = (held if endless else rows)(cluster, f"sink{number}")
        assert given == wanted(found, ranked(over, where, columns)), (over, where)


def test_rows_of_similar_keys_do_not_replace_each_other(cluster: InMemoryCluster) -> None:
    keys: list[tuple[str | None, str]] = [("a_b", "c"), ("a", "b_c"), ("a b", "c"), ("a%20b", "c")]
    keys += [(each, "c") for each in (None, "None", "", "%00")]
    put(cluster, "t", [{"k": one, "k2": two, "v": n, "ts": at_second(n)} for one, two in keys for n in range(3)])
    table = TABLE.replace("k STRING", "k STRING, k2 STRING")
    query = ranked("PARTITION BY k, k2 ORDER BY v DESC", "rn = 1", "k, k2, v")
    run(cluster, f"{table} {sink('k STRING, k2 STRING, v INT', 'k, k2')} INSERT INTO sink {query};", endless=True)
    assert held(cluster) == sorted([(*each, 2) for each in keys], key=repr)


def test_a_key_that_is_null_can_be_of_any_type(cluster: InMemoryCluster) -> None:
    put(cluster, "t", [{"id": n, "ts": at_second(n)} for n in range(3)])
    query = ranked("PARTITION BY d, v ORDER BY id DESC", "rn = 1", "d, v, id")
    run(cluster, f"{TABLE} {sink('d DOUBLE, v INT, id INT', 'd, v')} INSERT INTO sink {query};", endless=True)
    assert held(cluster) == [(None, None, 2)]


WINDOW = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND))"


def test_rows_that_come_once(cluster: InMemoryCluster) -> None:
    """The first row by event time, the first rows of a window and of its groups; and a window over first rows."""
    found = some_rows(Random(7), 150, ["a", "b", None])
    put(cluster, "t", found)
    first = ranked("PARTITION BY k ORDER BY ts", "rn = 1", "k, ts")

    def of_windows(order: str, source: str, limit: int) -> str:
        over = f"PARTITION BY window_start, window_end ORDER BY {order}"
        return f"(SELECT *, ROW_NUMBER() OVER ({over}) AS rn FROM {source}) AS r WHERE rn <= {limit}"

    counts = f"SELECT k, window_start, window_end, COUNT(*) AS n FROM {WINDOW} GROUP BY k, window_start, window_end"
    others = [
        f"TABLE({kind}(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND))"
        for kind in ("CUMULATE", "HOP")
    ]
    statements = [
        ("k STRING, ts TIMESTAMP(3)", first),
        ("at TIMESTAMP(3), rn BIGINT, id INT", f"SELECT window_end, rn, id FROM {of_windows('v DESC, id', WINDOW, 3)}"),
        (
            "at TIMESTAMP(3), k STRING, n BIGINT",
            f"SELECT window_end, k, n FROM {of_windows('n DESC, k', f'({counts}) AS g', 1)}",
        ),
        (
            "at TIMESTAMP(3), n BIGINT",
            "SELECT window_end, COUNT(*) FROM "
            f"{WINDOW.replace('TABLE t', 'TABLE f')} GROUP BY window_start, window_end",
        ),
        *(("at TIMESTAMP(3), id INT", f"SELECT window_end, id FROM {of_windows('id', each, 1)}") for each in others),
    ]
    text = "".join(
        f"{sink(columns, number=number)} INSERT INTO sink{number} {query};"
        for number, (columns, query) in enumerate(statements)
    )
    run(cluster, f"{TABLE} CREATE VIEW f AS {first}; {text}")
    tumbled = (
        "(SELECT *, TIMESTAMP '2024-01-01 00:00:00' + INTERVAL (20 * (extract(second FROM ts)::INT // 20 + 1)) SECOND "
        "AS w FROM t)"
    )
    assert rows(cluster, "sink0") == wanted(found, "SELECT k, MIN(ts) FROM t GROUP BY k")
    assert rows(cluster, "sink1") == wanted(
        found,
        "SELECT w, rn, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY w ORDER BY v DESC, id) AS rn "
        f"FROM {tumbled}) WHERE rn <= 3",
    )
    assert rows(cluster, "sink2") == wanted(
        found,
        "SELECT w, k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY w ORDER BY n DESC, k) AS rn FROM "
        f"(SELECT w, k, COUNT(*) AS n FROM {tumbled} GROUP BY w, k)) WHERE rn = 1",
    )
    assert rows(cluster, "sink3") == wanted(
        found, f"SELECT w, COUNT(*) FROM (SELECT k, MIN(ts) AS ts, MIN(w) AS w FROM {tumbled} GROUP BY k) GROUP BY w"
    )
    times = {each["id"]: int(each["ts"][-2:]) for each in found}

    def smallest(spans: list[tuple[int, int]]) -> list[tuple[str, int]]:
        members = {end: [id for id, at in times.items() if start <= at < end] for start, end in spans}
        return sorted(((at_second(end), min(ids)) for end, ids in members.items() if ids), key=repr)

    assert rows(cluster, "sink4") == smallest([(n // 3 * 30, n * 10 + 10) for n in range(6)])
    assert rows(cluster, "sink5") == smallest([(n * 10 - 20, n * 10 + 10) for n in range(8)])


def at_second(second: int) -> str:
    return str(dt.datetime(2024, 1, 1) + dt.timedelta(seconds=second))


def test_rows_that_no_longer_pass_are_deleted(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """HAVING, WHERE above groups, and first rows of groups. A group is given with every element."""
    # Beam's Direct runner has no clock for triggers of processing time, if the input ends.
    often = {"trigger": Repeatedly(AfterCount(1)), "accumulation_mode": AccumulationMode.ACCUMULATING}
    monkeypatch.setattr(windows, "of_groups", lambda: often)
    found = some_rows(Random(3), 200, ["a", "b", "c", "d", "e", "f"])
    put(cluster, "t", found)
    counts = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k"
    having = f"{counts} HAVING SUM(v) > 0"
    top = "SELECT {} FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC, k) AS rn FROM ({}) AS g) AS r WHERE rn <= 3"
    run(
        cluster,
        f"{TABLE} {sink('k STRING, n BIGINT, s INT', 'k', 0)} INSERT INTO sink0 {having};"
        f"{sink('k STRING, n BIGINT', 'k', 1)} INSERT INTO sink1 SELECT k, n FROM ({counts}) AS g WHERE s < 2;"
        f"{sink('rn BIGINT, k STRING', 'rn', 2)} INSERT INTO sink2 {top.format('rn, k', counts)};"
        f"{sink('k STRING, n BIGINT', 'k', 3)} INSERT INTO sink3 {top.format('k, n', having)};",
        endless=True,
    )
    assert held(cluster, "sink0") == wanted(found, having)
    assert held(cluster, "sink1") == wanted(found, f"SELECT k, n FROM ({counts}) AS g WHERE s < 2")
    assert held(cluster, "sink2") == wanted(found, top.format("rn, k", counts))
    assert held(cluster, "sink3") == wanted(found, top.format("k, n", having))


def test_what_ends_is_given_once_and_has_no_processing_time(cluster: InMemoryCluster) -> None:
    put(cluster, "t", some_rows(Random(5), 60, ["a", "b"]))
    early = f"SELECT k, window_end, COUNT(*) FROM {WINDOW} GROUP BY k, window_start, window_end EMIT CHANGES"
    run(cluster, f"{TABLE} {sink('k STRING, e TIMESTAMP(3), n BIGINT')} INSERT INTO sink {early};")
    found = rows(cluster)
    assert len({each[:2] for each in found}) == len(found)
    assert sum(each[2] for each in found) == 60
    by_clock = "SELECT k, COUNT(*) FROM t GROUP BY k, TUMBLE(PROCTIME(), INTERVAL '1' SECOND)"
    with pytest.raises(SqlError, match="windows of processing time need an input that does not end"):
        run(cluster, f"{TABLE} {sink('k STRING, n BIGINT')} INSERT INTO sink {by_clock};")


@pytest.mark.parametrize("direction", ["", "DESC"])
def test_by_processing_time_rows_are_in_the_order_of_their_queue(direction: str, cluster: InMemoryCluster) -> None:
    """Each key is in one queue: the first or the last row of it counts, by the order of the queue."""
    found = [{"id": n, "k": "ab"[n % 2], "v": n, "d": 0.0, "ts": None} for n in range(300)]
    put(cluster, "t", found)
    table = TABLE.replace(", WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE", ", p AS PROCTIME()")
    query = ranked(f"PARTITION BY k ORDER BY p {direction}", "rn = 1", "k, id")
    run(cluster, f"{table} {sink('k STRING, id INT')} INSERT INTO sink {query};")
    assert rows(cluster) == ([("a", 298), ("b", 299)] if direction else [("a", 0), ("b", 1)])


@pytest.mark.parametrize("endless", [False, True], ids=["ends", "endless"])
@pytest.mark.parametrize(
    ("over", "source", "last"),
    [
        ("PARTITION BY k ORDER BY ts DESC", "t", True),
        ("PARTITION BY k ORDER BY ts", "t", False),
        ("PARTITION BY k ORDER BY v DESC", "t", False),
        ("PARTITION BY k ORDER BY d", "(SELECT * FROM t WHERE v = 1 UNION ALL SELECT * FROM t WHERE v > 1)", False),
        ("PARTITION BY k, window_start, window_end ORDER BY ts DESC", WINDOW, True),
    ],
)
def test_rows_that_are_equal_are_in_the_order_of_their_queue(
    over: str, source: str, last: bool, endless: bool, cluster: InMemoryCluster
) -> None:
    """Neither their bytes count nor their batches: ids go down and up again."""
    numbers = [5, 3, 9, 1, 7, 2]
    put(cluster, "t", [{"id": n, "k": k, "v": 1, "d": 0.0, "ts": at_second(1)} for n in numbers for k in "abcd"])
    query = ranked(over, "rn = 1", "k, id", f"{source} AS x" if source[0] == "(" else source)
    run(cluster, f"{TABLE} {sink('k STRING, id INT', 'k')} INSERT INTO sink {query};", endless=endless)
    assert held(cluster) == [(k, numbers[-1] if last else numbers[0]) for k in "abcd"]


def test_tombstones_are_no_rows(cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with a PRIMARY KEY leaves them out; what is printed says them."""
    put(cluster, "t", [{"id": n, "k": "a", "v": n, "d": 1.0, "ts": "2024-01-01 00:00:00"} for n in range(3)])
    cluster.append("t", b"", keys=("a",), queue_id=1)
    table = TABLE.replace("WATERMARK", "PRIMARY KEY (id) NOT ENFORCED, WATERMARK")
    printed = "CREATE TABLE p (k STRING, v INT, PRIMARY KEY (k, v) NOT ENFORCED) WITH ('connector' = 'print');"
    query = ranked("PARTITION BY k ORDER BY v DESC", "rn = 1", "k, v")
    first = f"INSERT INTO sink SELECT id FROM ({ranked('PARTITION BY id ORDER BY ts', 'rn = 1', 'id')}) AS f;"
    run(cluster, f"{table} {sink('id INT')} {first} {printed} INSERT INTO p {query};")
    assert rows(cluster) == [(0,), (1,), (2,)]
    assert capsys.readouterr().out == '{"k":"a","v":2}\n'


def test_the_signature_has_the_state_and_no_places() -> None:
    def signature(text: str) -> Any:
        script = Script()
        script.run(f"{TABLE} {sink('k STRING, id INT', 'k')} INSERT INTO sink {text};")
        return json.loads(json.dumps(signature_of(script.sinks)))

    query = ranked("PARTITION BY k ORDER BY v DESC, id", "rn <= 3", "k, id")
    before = signature(query)
    assert changes(before, signature(f"-- a comment\n{query}")) == []
    other = signature(query.replace("rn <= 3", "rn <= 4").replace("v DESC", "v"))
    assert changes(before, other) == [
        "INSERT INTO sink: first rows: order was t.v descending, t.id, queue_offset, and is t.v, t.id, queue_offset",
        "INSERT INTO sink: first rows: nulls first was false, true, true, and is true, true, true",
        "INSERT INTO sink: first rows: limit was 3, and is 4",
    ]
