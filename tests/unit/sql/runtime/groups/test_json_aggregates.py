"""JSON_ARRAYAGG and JSON_OBJECTAGG, wherever aggregates stand, beside DuckDB and what Flink's documents say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.runtime import windows
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql import running
from tests.unit.sql.runtime.ranks import updating

TABLE = (
    "CREATE TABLE t (id INT, k STRING, s STRING, n INT, d DECIMAL(6, 2), l ARRAY<INT>, ts TIMESTAMP(3), "
    "WATERMARK FOR ts AS ts) WITH ('topic' = 't', 'on-error' = 'skip');"
)


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink"):
            made.create_topic(topic, 2)
        yield made


def job(cluster: InMemoryCluster, columns: str, *queries: str, endless: bool = False) -> None:
    inserts = "".join(f"INSERT INTO sink {query};" for query in queries)
    text = f"{TABLE} CREATE TABLE sink ({columns}) WITH ('topic' = 'sink'); {inserts}"
    updating.run(cluster, text, endless=True) if endless else running.run(cluster, text)


def some_rows(count: int) -> list[dict[str, Any]]:
    random = Random(7)
    return [
        {
            "id": number,
            "k": random.choice(["a", "b", "c", None]),
            "s": random.choice(['q"\\/', "é中😀", "", None]),
            "n": random.choice([None, *range(-2, 3)]),
            "d": random.choice([None, 1.5, -20.25]),
            "l": random.choice([None, [1, None, 2], []]),
            "ts": f"2024-01-01 00:{number // 20:02}:{number % 60:02}",
        }
        for number in range(count)
    ]


def parsed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows with arrays of JSON in some order, since that of rows is not said, and objects as they are."""
    return running.in_order([(*keys, json.dumps(sorted(json.loads(array), key=repr)), o) for *keys, array, o in rows])


def test_items_and_members_of_groups(cluster: InMemoryCluster) -> None:
    rows = some_rows(60)
    running.put(cluster, "t", *rows)
    job(
        cluster,
        "k STRING, x STRING, y STRING",
        "SELECT k, JSON_ARRAYAGG(s NULL ON NULL), JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE n) FROM t GROUP BY k",
        "SELECT 'absent', JSON_ARRAYAGG(l), JSON_OBJECTAGG('k' || CAST(id AS STRING) VALUE d ABSENT ON NULL) FROM t",
        "SELECT 'some', JSON_ARRAYAGG(id ABSENT ON NULL) FILTER (WHERE n > 0), "
        "JSON_OBJECTAGG(CAST(id AS STRING), ROW(n, s) NULL ON NULL) FILTER (WHERE id < 3) FROM t",
    )

    def of(found: list[dict[str, Any]]) -> str:
        ordered = sorted(found, key=lambda row: str(row["id"]))
        return "{" + ",".join(f'"{row["id"]}":{json.dumps(row["n"])}' for row in ordered) + "}"

    wanted = []
    for key in {row["k"] for row in rows}:
        found = [row for row in rows if row["k"] == key]
        wanted.append((key, json.dumps([row["s"] for row in found]), of(found)))
    decimals = sorted((f"k{row['id']}", f"{row['d']:.2f}") for row in rows if row["d"] is not None)
    absent = "{" + ",".join(f'"{key}":{text}' for key, text in decimals) + "}"
    wanted.append(("absent", json.dumps([row["l"] for row in rows if row["l"] is not None]), absent))
    pairs = (json.dumps({"EXPR$0": row["n"], "EXPR$1": row["s"]}, ensure_ascii=False) for row in rows[:3])
    some = "{" + ",".join(f'"{n}":{text.replace(": ", ":").replace(", ", ",")}' for n, text in enumerate(pairs)) + "}"
    wanted.append(("some", json.dumps([row["id"] for row in rows if (row["n"] or 0) > 0]), some))
    assert parsed(running.rows(cluster)) == parsed(wanted)


def test_it_is_what_duckdb_gives(cluster: InMemoryCluster) -> None:
    duckdb = pytest.importorskip("duckdb", reason="it is the oracle")
    rows = some_rows(80)
    running.put(cluster, "t", *rows)
    with duckdb.connect() as oracle:
        oracle.execute("CREATE TABLE t (id INT, k VARCHAR, s VARCHAR, n INT)")
        columns = ("id", "k", "s", "n")
        oracle.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [[row[each] for each in columns] for row in rows])
        wanted = oracle.execute(
            "SELECT k, json_group_array(s), json_group_object(CAST(id AS VARCHAR), n) FROM t GROUP BY k"
        ).fetchall()
    job(
        cluster,
        "k STRING, x STRING, y STRING",
        "SELECT k, JSON_ARRAYAGG(s NULL ON NULL), JSON_OBJECTAGG(CAST(id AS STRING) VALUE n) FROM t GROUP BY k",
    )

    found = running.rows(cluster)
    assert len(found) == len(wanted)
    assert {k: (Counter(json.loads(x)), json.loads(y)) for k, x, y in found} == {
        k: (Counter(json.loads(x)), json.loads(y)) for k, x, y in wanted
    }


FLINK_ROWS = [
    {"id": 1, "k": "a", "s": "x", "n": 1, "d": 1.25},
    {"id": 2, "k": "a", "s": None, "n": 2, "d": 2.5},
    {"id": 3, "k": "b", "s": "y", "n": None, "d": None},
    {"id": 4, "k": "b", "s": "z", "n": 7, "d": 3.1},
    {"id": 5, "k": "b", "s": "z", "n": 0, "d": -1},
    {"id": 6, "k": "a", "s": "q", "n": 4, "d": 0.01},
]
# What Flink 2.0.0 gives for these rows, in their order; variances are of 2.3.0, which cuts them off at the end only.
AS_FLINK = {
    "JSON_ARRAYAGG(JSON_OBJECT(KEY 'a' VALUE n)) FROM t": '[{"a":1},{"a":2},{"a":null},{"a":7},{"a":0},{"a":4}]',
    "JSON_ARRAYAGG(JSON_ARRAY(n)) FROM t": "[[1],[2],[],[7],[0],[4]]",
    "JSON_ARRAYAGG(JSON_QUERY('[1]', '$')) FROM t WHERE id = 1": '["[1]"]',
    "JSON_ARRAYAGG(d) FROM t": "[1.25,2.50,3.10,-1.00,0.01]",
    "JSON_OBJECTAGG(KEY (CAST(10 - id AS STRING)) VALUE n) FROM t": '{"4":4,"5":0,"6":7,"7":null,"8":2,"9":1}',
    "JSON_OBJECTAGG(CAST(id AS STRING) VALUE JSON_OBJECT(KEY 'a' VALUE n)) FROM t WHERE n < 2": (
        '{"1":{"a":1},"5":{"a":0}}'
    ),
    "LISTAGG(s) FROM t WHERE k = 'b'": "y,z,z",
    "LISTAGG(s, ';') FROM t WHERE k = 'b'": "y;z;z",
    "LISTAGG(DISTINCT s) FROM t WHERE k = 'b'": "y,z",
    "CAST(VAR_POP(n) AS STRING) FROM t WHERE k = 'b'": "12",
    "CAST(VAR_SAMP(n) AS STRING) FROM t WHERE k = 'b'": "24",
    "CAST(STDDEV(n) AS STRING) FROM t WHERE k = 'a'": "1",
    "CAST(VARIANCE(n) AS STRING) FROM t WHERE k = 'a'": "2",
    "CAST(STDDEV_POP(d) AS STRING) FROM t WHERE k = 'b'": "2.050000",
    "CAST(STDDEV_POP(d) AS STRING) FROM t WHERE k = 'a'": "1.016541",
    "CAST(VAR_SAMP(d) AS STRING) FROM t WHERE id = 1": None,
    "JSON_STRING(ARRAY_AGG(s)) FROM t WHERE k = 'a'": '["x",null,"q"]',
    "JSON_STRING(ARRAY_AGG(DISTINCT s)) FROM t": '["x",null,"y","z","q"]',
    "JSON_STRING(ARRAY_AGG(s)) FROM t WHERE id > 100": None,
    "LISTAGG(s) FROM t WHERE id > 100": None,
    "CAST(APPROX_COUNT_DISTINCT(s) AS STRING) FROM t": "4",
}


def test_aggregates_are_those_of_flink(cluster: InMemoryCluster) -> None:
    running.put(cluster, "t", *FLINK_ROWS, queue_id=0)
    queries = [f"SELECT '{number}', {each}" for number, each in enumerate(AS_FLINK)]
    job(cluster, "k STRING, x STRING", *queries)
    found = {int(number): value for number, value in running.rows(cluster)}
    assert {query: found[number] for number, query in enumerate(AS_FLINK)} == AS_FLINK


MINUTES = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("window", "groups"),
    [
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)", MINUTES),
        (
            "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)",
            [MINUTES[0], MINUTES[0] + MINUTES[1], MINUTES[1] + MINUTES[2], MINUTES[2]],
        ),
    ],
    ids=["tumble", "hop"],
)
def test_windows(window: str, groups: list[list[int]], cluster: InMemoryCluster) -> None:
    running.put(cluster, "t", *({"id": n, "ts": f"2024-01-01 00:0{n // 3}:{n % 3}0"} for n in range(9)))
    job(
        cluster,
        "w STRING, x STRING, y STRING",
        "SELECT CAST(window_start AS STRING), JSON_ARRAYAGG(id), JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE id) "
        f"FROM TABLE({window}) GROUP BY window_start, window_end",
    )
    found = parsed(running.rows(cluster))
    assert [json.loads(x) for _, x, _ in found] == groups
    assert [json.loads(y) for _, _, y in found] == [{str(n): n for n in group} for group in groups]


def test_updates_by_key_hold_all_rows_of_a_key(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Beam's Direct runner has no clock for triggers of processing time, if the input ends.
    often = {"trigger": Repeatedly(AfterCount(1)), "accumulation_mode": AccumulationMode.ACCUMULATING}
    monkeypatch.setattr(windows, "of_groups", lambda: often)
    rows = some_rows(60)
    updating.put(cluster, "t", rows)
    job(
        cluster,
        "k STRING NOT NULL, x STRING, y STRING, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT COALESCE(k, '-'), JSON_ARRAYAGG(id), JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE s) FROM t "
        "GROUP BY COALESCE(k, '-')",
        endless=True,
    )
    groups = {key or "-": [row for row in rows if row["k"] == key] for key in ("a", "b", "c", None)}
    found = updating.held(cluster)
    assert {key: sorted(json.loads(x)) for key, x, _ in found} == {k: [r["id"] for r in v] for k, v in groups.items()}
    assert {key: json.loads(y) for key, _, y in found} == {
        key: {str(row["id"]): row["s"] for row in group} for key, group in groups.items()
    }


def test_no_rows_and_sets_of_groups(cluster: InMemoryCluster) -> None:
    running.put(cluster, "t", {"id": 1, "k": "a"}, {"id": 2, "k": None})
    job(
        cluster,
        "k STRING, x STRING, y STRING",
        "SELECT 'none', JSON_ARRAYAGG(id), JSON_OBJECTAGG(KEY k VALUE id) FROM t WHERE id > 5",
        "SELECT k, JSON_ARRAYAGG(id), CAST(GROUPING(k) AS STRING) FROM t GROUP BY ROLLUP (k)",
    )
    assert parsed(running.rows(cluster)) == parsed(
        [("none", "[]", "{}"), ("a", "[1]", "0"), (None, "[2]", "0"), (None, "[1,2]", "1")]
    )


def test_a_key_that_is_null_is_a_bad_row_and_one_that_is_there_twice_a_bad_group(cluster: InMemoryCluster) -> None:
    query = "SELECT 'x', JSON_OBJECTAGG(KEY k VALUE id) FROM t"
    running.put(cluster, "t", {"id": 1, "k": "a"}, {"id": 2, "k": None}, {"id": 3, "k": "b"})
    job(cluster, "k STRING, y STRING", query)
    assert running.rows(cluster) == [("x", '{"a":1,"b":3}')]
    running.put(cluster, "t", {"id": 4, "k": "a"}, queue_id=1)
    job(cluster, "k STRING, y STRING", query)
    assert running.rows(cluster) == [("x", '{"a":1,"b":3}')], "the group is left out, as on-error says"


def test_the_plan_says_what_is_aggregated() -> None:
    script = Script()
    script.run(
        f"{TABLE} CREATE TABLE sink (x STRING, y STRING, z STRING) WITH ('topic' = 'sink');"
        "EXPLAIN INSERT INTO sink SELECT JSON_ARRAYAGG(s NULL ON NULL), JSON_OBJECTAGG(KEY k VALUE JSON_STRING(n) "
        "ABSENT ON NULL), JSON_ARRAYAGG(l) FROM t WHERE s IS JSON AND k IS NOT JSON OBJECT;"
    )
    plan = explain(script.explained)
    for line in (
        "JSON_ARRAYAGG(s NULL ON NULL)",
        "JSON_OBJECTAGG(KEY k VALUE JSON_STRING(n) ABSENT ON NULL)",
        "JSON_ARRAYAGG(l)",
        "where s IS JSON",
        "where k IS NOT JSON OBJECT",
    ):
        assert line in plan


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT JSON_ARRAYAGG(DISTINCT n) FROM t", "JSON_ARRAYAGG takes no DISTINCT: group a SELECT DISTINCT"),
        ("SELECT JSON_ARRAYAGG(n, s) FROM t", r"JSON_ARRAYAGG takes one argument: JSON_ARRAYAGG\(v\)"),
        ("SELECT JSON_ARRAYAGG(k VALUE s) FROM t", r"JSON_ARRAYAGG takes one argument: JSON_ARRAYAGG\(v\)"),
        ("SELECT JSON_ARRAYAGG(*) FROM t", r"JSON_ARRAYAGG takes one argument: JSON_ARRAYAGG\(v\)"),
        ("SELECT JSON_OBJECTAGG(k) FROM t", r"takes a key and a value: JSON_OBJECTAGG\(KEY k VALUE v\)"),
        ("SELECT JSON_OBJECTAGG(KEY n VALUE s) FROM t", "a key of JSON_OBJECTAGG is STRING, and this is INT"),
        ("SELECT JSON_ARRAYAGG(n RETURNING INT) FROM t", "JSON_ARRAYAGG does not take this RETURNING"),
        ("SELECT id FROM t WHERE JSON_ARRAYAGG(n) = ''", "an aggregate function, which cannot be used in WHERE"),
        (
            "SELECT JSON_ARRAYAGG(COUNT(*)) FROM t",
            "COUNT is an aggregate function, which cannot be used in another one",
        ),
        ("SELECT JSON_ARRAYAGG(n) OVER (ORDER BY ts) FROM t", "JSON_ARRAYAGG cannot be used before OVER"),
        ("SELECT JSON_ARRAYAG(n) FROM t", "there is no function JSON_ARRAYAG: did you mean 'JSON_ARRAYAGG'"),
        ("SELECT id FROM t WHERE n IS JSON", "IS JSON tests text, and this is INT"),
    ],
)
def test_what_is_not_valid_is_refused(query: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        Script().run(f"{TABLE} EXPLAIN {query};")
