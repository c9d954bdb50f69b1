"""Joins with dimension tables on the Direct runner: files, databases and compacted topics."""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from hypothesis import HealthCheck, settings
from hypothesis import given as given_rows
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.sql.catalog.connectors import ConnectorOptions
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.explain.plans import explain
from rmqio.sql.lookup import dimensions
from rmqio.sql.lookup.sources import rows_of_database
from rmqio.sql.planning.plan import LookupJoin, Scan
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation, dimension_of, look_up
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.lookup.dimension_tables import LOOK_UP, ORDERS, SINK, TOPIC, customer, customers
from tests.unit.sql.running import in_order, put, rows, run, stored


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "u", "sink", "letters"):
            made.create_topic(topic, 2)
        yield made
        dimensions.close_all()


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "sqlite"])
def test_rows_meet_those_of_files_and_databases(cluster: InMemoryCluster, tmp_path: Path, kind: str) -> None:
    put(cluster, "t", *({"id": n, "customer": c} for n, c in enumerate([1, 2, 3, 4, None])))
    left = (
        "SELECT o.id, c.name FROM t AS o LEFT JOIN customers FOR SYSTEM_TIME AS OF o.proctime AS c ON o.customer = c.id"
    )
    run(
        cluster,
        f"{ORDERS} {SINK} {customers(tmp_path, kind)} INSERT INTO sink {left};"
        f"INSERT INTO sink {left.replace('LEFT', '').replace('o.id,', 'o.id + 100,')} WHERE c.level = 'gold';"
        f"INSERT INTO sink {left.replace('o.id,', 'o.id + 200,')} AND c.level IS NOT NULL AND o.id < 3;",
    )
    wanted = [(0, "Ann"), (1, "Bob"), (2, "Cy"), (2, "Cyd"), (3, None), (4, None), (100, "Ann"), (102, "Cyd")]
    wanted += [(200, "Ann"), (201, None), (202, "Cy"), (202, "Cyd"), (203, None), (204, None)]
    assert rows(cluster) == in_order(wanted)
    ids = [record.message_id for record in stored(cluster, "sink")]
    assert len(set(ids)) == len(ids)


MET = "SELECT o.id, c.name FROM t AS o LEFT JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id"
UNNESTED = (
    "SELECT v.id, e.name FROM (SELECT o.id, c.others FROM t AS o JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS c "
    "ON o.customer = c.id) AS v CROSS JOIN UNNEST(v.others) AS e (name)"
)
PRIMARY = ", PRIMARY KEY (id) NOT ENFORCED"


@pytest.mark.parametrize(
    ("insert", "more", "key", "wanted"),
    [
        (MET, "", "", [(1, "Aa"), (1, "Cy"), (1, "Cyd"), (2, None)]),
        (MET, f"INSERT INTO other {MET};", "", [(1, "Aa"), (1, "Cy"), (1, "Cyd"), (2, None)]),
        (UNNESTED, "", "", [(1, "x"), (1, "y"), (1, "y"), (1, "z"), (1, "z")]),
        (UNNESTED, "", PRIMARY, [(1, "x"), (1, "y"), (1, "y"), (1, "z"), (1, "z")]),
        (MET, "", PRIMARY, [(1, "Cyd"), (2, None)]),
    ],
)
def test_no_row_is_a_copy_of_another_when_a_table_has_changed(
    cluster: InMemoryCluster, tmp_path: Path, insert: str, more: str, key: str, wanted: list[Any]
) -> None:
    """The one row of a PRIMARY KEY is that of its message, whatever it is now."""
    path = tmp_path / "names.json"
    script = (
        f"{ORDERS} {SINK[:-2]}, 'sink.delivery-guarantee' = 'exactly-once', 'producerGroup' = 'g');"
        "CREATE TABLE other (id INT, name STRING) WITH ('topic' = 'u');"
        f"CREATE TABLE names (id INT{' NOT NULL' * bool(key)}, name STRING, others ARRAY<STRING>{key}) WITH ("
        f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'); INSERT INTO sink {insert}; {more}"
    )
    put(cluster, "t", {"id": 1, "customer": 3}, {"id": 2, "customer": 4})
    old = [{"id": 3, "name": "Cyd", "others": ["y", "z"]}, *([] if key else [{"id": 3, "name": "Cy"}])]
    new = {"id": 3, "name": "Aa", "others": ["x", "y", "z"]}
    for names in (old, [new] if key else [new, *old]):
        path.write_text("\n".join(map(json.dumps, names)))
        run(cluster, script)
    assert rows(cluster) == in_order(wanted)


def test_a_compacted_topic_has_the_newest_row_of_each_key(cluster: InMemoryCluster) -> None:
    put(cluster, "u", customer(1, "Ann"), customer(2, "Bob"), customer(1, "Anne"), customer(3, "Cy"), queue_id=0)
    put(cluster, "u", b"", keys=["2"], queue_id=0)
    put(cluster, "u", customer(4, "Di"), queue_id=1)
    put(cluster, "t", *({"id": n, "customer": n} for n in range(1, 6)))
    run(cluster, f"{ORDERS} {SINK} {TOPIC.format('')} {LOOK_UP}")
    assert rows(cluster) == [(1, "Anne"), (2, None), (3, "Cy"), (4, "Di"), (5, None)]


def test_a_compacted_topic_is_looked_up_by_any_column(cluster: InMemoryCluster) -> None:
    """Rows leave a key when a newer one has another, or no longer passes the filter."""
    put(cluster, "u", customer(1, "Ann", "gold"), customer(2, "Bob", "gold"), customer(3, "Cy", "tin"), queue_id=0)
    put(cluster, "u", customer(2, "Bob", "tin"), customer(4, "Di", None), customer(1, "old", "gold"), queue_id=0)
    put(cluster, "t", {"id": 1, "level": "gold"}, {"id": 2, "level": "tin"}, {"id": 3, "level": None})
    orders = "CREATE TABLE t (id INT, level STRING) WITH ('topic' = 't');"
    run(
        cluster,
        f"{orders} {SINK} {TOPIC.format('')} INSERT INTO sink SELECT o.id, c.name FROM t AS o JOIN customers "
        "FOR SYSTEM_TIME AS OF PROCTIME() AS c USING (level) WHERE c.name <> 'old';",
    )
    assert rows(cluster) == [(2, "Bob"), (2, "Cy")]


@pytest.mark.parametrize("bad", [b"{", {"id": "many"}, {"id": None, "name": "x"}, b""])
def test_a_bad_row_of_a_dimension_fails_the_job_or_is_skipped(
    cluster: InMemoryCluster, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    put(cluster, "u", customer(1, "Ann"), bad, customer(2, "Bob"), queue_id=0)
    put(cluster, "t", {"id": 1, "customer": 2})
    with pytest.raises(
        Exception, match=r"the dimension table customers cannot be loaded: queue u/broker-a/0, offset 1: "
    ):
        run(cluster, f"{ORDERS} {SINK} {TOPIC.format('')} {LOOK_UP}")
    with caplog.at_level(logging.WARNING):
        skipping = TOPIC.format(", 'on-error' = 'skip'")
        run(cluster, f"{ORDERS} {SINK} {skipping} {LOOK_UP}")
    assert rows(cluster) == [(1, "Bob")]
    assert "offset 1" in caplog.text


def test_what_cannot_be_loaded_fails_the_job(cluster: InMemoryCluster, tmp_path: Path) -> None:
    put(cluster, "t", {"id": 1, "customer": 2})
    given = customers(tmp_path, "csv")
    (tmp_path / "customers.csv").unlink()
    with pytest.raises(Exception, match=r"the dimension table customers cannot be loaded: there is no file .*\.csv"):
        run(cluster, f"{ORDERS} {SINK} {given} {LOOK_UP}")
    (tmp_path / "customers.csv").write_text("1,Ann,gold\nmany,Bob,gold\n")
    with pytest.raises(Exception, match=r"customers\.csv, row 2: column id: 'many' is not a whole number"):
        run(cluster, f"{ORDERS} {SINK} {given} {LOOK_UP}")


def test_all_of_a_row_or_none_of_it_goes_on(cluster: InMemoryCluster, tmp_path: Path) -> None:
    """The second pair of a row fails: the row goes to the dead letters, and its first pair nowhere."""
    put(cluster, "t", {"id": 1, "customer": 1}, {"id": 2, "customer": 3})
    orders = ORDERS.replace("'t'", "'t', 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'")
    (tmp_path / "x.csv").write_text("1,10,\n3,30,\n3,many,\n")
    dimension = (
        f"CREATE TABLE customers (id INT, name STRING, level STRING) WITH ('connector' = 'filesystem', "
        f"'format' = 'csv', 'path' = '{tmp_path / 'x.csv'}');"
        "CREATE TABLE counts (id INT, n BIGINT, m INT) WITH ('topic' = 'sink');"
    )
    query = "FROM t AS o JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id"
    run(
        cluster,
        f"{orders} {SINK} {dimension} INSERT INTO sink SELECT CAST(c.name AS INT), 'row' {query};"
        f"INSERT INTO counts SELECT o.id, COUNT(*), MAX(CAST(c.name AS INT)) {query} GROUP BY o.id;",
    )
    assert sorted(tuple(map(str, row)) for row in rows_as_they_are(cluster)) == [("1", "1", "10"), ("10", "row")]
    letters = [json.loads(each.body)["id"] for each in stored(cluster, "letters")]
    assert letters == [2], "both statements look at the row again when it is sent back"


def rows_as_they_are(cluster: InMemoryCluster) -> list[tuple[Any, ...]]:
    return [tuple(json.loads(record.body).values()) for record in stored(cluster, "sink")]


def test_dimensions_follow_each_other_and_stand_beside_groups_and_joins(
    cluster: InMemoryCluster, tmp_path: Path
) -> None:
    put(cluster, "t", *({"id": n, "customer": 1 + n % 3, "amount": n} for n in range(9)))
    levels = tmp_path / "levels.csv"
    levels.write_text("gold,10\nsilver,5\n")
    tables = f"{ORDERS} {customers(tmp_path, 'csv')}" + (
        f"CREATE TABLE levels (level STRING, percent INT) WITH ('type' = 'file', 'format' = 'csv', "
        f"'path' = '{levels}');"
        "CREATE TABLE sink (name STRING, n BIGINT, percent INT) WITH ('topic' = 'sink');"
        "SET 'table.exec.state.ttl' = '1 h';"
    )
    run(
        cluster,
        f"{tables} INSERT INTO sink SELECT c.name, COUNT(*), MAX(l.percent) FROM t AS o "
        "JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id "
        "LEFT JOIN levels FOR SYSTEM_TIME AS OF PROCTIME() AS l ON c.level = l.level GROUP BY c.name;"
        "INSERT INTO sink SELECT c.name, g.n, 0 FROM (SELECT customer, COUNT(*) AS n FROM t GROUP BY customer) AS g "
        "JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON g.customer = c.id WHERE c.level IS NULL;"
        "INSERT INTO sink SELECT c.name, a.id, b.id FROM t AS a JOIN t AS b ON a.id = b.amount "
        "JOIN customers FOR SYSTEM_TIME AS OF a.proctime AS c ON a.customer = c.id WHERE a.id = 1;",
    )
    assert rows(cluster) == in_order(
        [("Ann", 3, 10), ("Bob", 3, None), ("Cy", 3, 5), ("Cyd", 3, 10), ("Bob", 3, 0), ("Bob", 1, 1)]
    )


def test_keys_of_several_columns_and_of_other_types(cluster: InMemoryCluster, tmp_path: Path) -> None:
    put(cluster, "t", {"id": 1, "customer": 1, "amount": 7}, {"id": 2, "customer": 1, "amount": 8})
    path = tmp_path / "x.json"
    path.write_text(
        "\n".join(json.dumps({"id": a, "n": b, "d": d}) for a, b, d in [(1, 7, "x"), (1, 8, "y"), (2, 7, "z")])
    )
    run(
        cluster,
        f"{ORDERS} {SINK} CREATE TABLE c (id BIGINT, n DOUBLE, d STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{path}'); INSERT INTO sink SELECT o.id, c.d FROM t AS o "
        "JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON o.customer = c.id AND o.amount + 1 = c.n + 1;",
    )
    assert rows(cluster) == [(1, "x"), (2, "y")]


ROWS = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(0, 3))] * 3), max_size=8)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given_rows(
    left=ROWS,
    right=ROWS,
    kind=st.sampled_from(["", "LEFT"]),
    on=st.sampled_from(
        ["o.a = c.a", "o.a = c.a AND c.b = o.b", "o.a + 1 = c.b AND o.n < c.n", "o.b = c.b AND c.n > 1"]
    ),
    where=st.sampled_from(["TRUE", "c.n IS NULL", "o.n > 1 OR c.a = 2", "c.n <> 2", "o.n = 1"]),
)
def test_rows_are_those_of_duckdb(
    tmp_path: Path, left: list[Any], right: list[Any], kind: str, on: str, where: str
) -> None:
    """The fragment alone, over all rows as one batch."""
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / f"{uuid.uuid4().hex}.json"
    path.write_text("".join(json.dumps(dict(zip("abn", row, strict=True))) + "\n" for row in right))
    select = f"SELECT o.a, o.b, o.n, c.a, c.b, c.n FROM o {kind} JOIN c {{}} ON {on} WHERE {where}"
    connection = duckdb.connect()
    for name, given in (("o", left), ("c", right)):
        connection.execute(f"CREATE TABLE {name} (a INT, b INT, n INT)")
        if given:
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", given)
    wanted = connection.execute(select.format("")).fetchall()
    columns = "(a INT, b INT, n INT)"
    script = Script()
    script.run(
        f"CREATE TABLE o {columns} WITH ('topic' = 'o');"
        f"CREATE TABLE c {columns} WITH ('type' = 'file', 'path' = '{path}');"
        f"EXPLAIN {select.format('FOR SYSTEM_TIME AS OF PROCTIME()')}"
    )
    relation: Any = script.explained[0]
    steps: tuple[Any, ...] = ()
    while not isinstance(relation, Scan):
        if isinstance(relation, LookupJoin):
            steps = (look_up(relation, path.name, Connection().of), *steps)
        else:
            steps = (Step(relation.condition, relation.projections), *steps)
        (relation,) = relation.inputs()
    run_fragment = compiled(Fragment(FromRows(relation.fields), steps, ToRows()))
    places = ["abn".index(each.name) for each in relation.columns]
    mapped = run_fragment([tuple(row[place] for place in places) for row in left])
    assert not mapped.failed
    assert Counter(mapped.values) == Counter(wanted)
    assert list(mapped.positions) == sorted(mapped.positions)


def test_a_password_is_read_where_its_table_is(tmp_path: Path) -> None:
    """SQLite has none. tests/integration/sql/test_databases.py has a server that asks for it."""
    for options, message in (
        (ConnectorOptions(password_env="NOT_THERE_7"), "environment variable NOT_THERE_7 is not set"),
        (ConnectorOptions(password_env="SecretGiven7"), r"environment variable \*\*\* \(not in capitals: "),
        (ConnectorOptions(password_file="/none/x"), "the password cannot be read from /none/x: No such file"),
    ):
        given = replace(options, url=f"sqlite:///{tmp_path}/x.db", table_name="c")
        with pytest.raises(LocalError, match=f"table c of sqlite:.* cannot be read: .*{message}") as raised:
            list(rows_of_database(given, ["id"]))
        assert "SecretGiven7" not in str(raised.value)
        assert "secret" not in repr(given)


def test_no_password_is_in_a_plan_or_its_repr() -> None:
    script = Script()
    script.run(
        "CREATE TABLE o (id INT) WITH ('topic' = 'o');"
        "CREATE TABLE c (id INT, name STRING) WITH ('connector' = 'jdbc', 'url' = 'mysql://me@h/db', "
        "'table-name' = 'c', 'password' = 'secret2');"
        "EXPLAIN SELECT c.name FROM o JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON o.id = c.id;"
    )
    assert "table c of mysql://h/db" in explain(script.explained)
    assert "secret" not in explain(script.explained) + repr(script.explained)


def test_a_password_in_a_script_is_in_no_display_data() -> None:
    script = Script()
    script.run(
        f"{ORDERS} {SINK} CREATE TABLE c (id INT, name STRING) WITH ('connector' = 'jdbc', 'url' = 'sqlite:///x', "
        "'table-name' = 'c', 'password' = 'secret2');"
        "INSERT INTO sink SELECT o.id, c.name FROM t AS o JOIN c FOR SYSTEM_TIME AS OF o.proctime AS c ON o.id = c.id;"
    )
    with clean_cluster() as cluster:
        pipeline = beam.Pipeline()
        Translation(pipeline, Connection(client_factory=InMemoryClientFactory(cluster.name))).add_all(script.sinks)
    steps = pipeline.to_runner_api().components.transforms.values()
    shown = [item.SerializeToString() for step in steps for item in step.display_data]
    assert shown
    assert b"secret2" not in b"".join(shown)


def test_the_plan_shows_the_look_up(tmp_path: Path) -> None:
    script = Script()
    script.run(
        f"{ORDERS} {SINK} CREATE TABLE customers (id INT, name STRING, level STRING, extra STRING) WITH ('connector' = "
        "'jdbc', 'url' = 'postgresql://me@db:5432/shop?x=y', 'table-name' = 'public.customers', "
        "'refresh' = '10 min');"
        "EXPLAIN INSERT INTO sink SELECT o.id, c.name FROM t AS o JOIN customers FOR SYSTEM_TIME AS OF o.proctime AS c "
        "ON o.customer = c.id AND o.amount > CHAR_LENGTH(c.level) WHERE c.level <> 'tin' AND o.amount > 5;"
    )
    assert (
        explain(script.explained)
        == """\
Insert into sink (topic sink, json), append-only
│   writes id INT, name STRING
└─ Select
   │   id, name
   └─ Look up in customers (table public.customers of postgresql://db:5432/shop), inner, append-only
      │   by customer = id
      │   where amount > CHAR_LENGTH(level)
      │   each worker keeps id, name, level (reads 3 of 4 columns)
      │   only rows where level <> 'tin'
      │   is loaded again every 10 min
      └─ Select
         │   id, customer, amount
         │   where amount > 5
         └─ Read t (topic t, json), append-only
                decodes id, customer, amount (3 of 3 columns)"""
    )


@pytest.mark.parametrize(
    ("column", "value", "asked"),
    [
        ("DOUBLE", "1", 1),
        ("DOUBLE", "1.5", Decimal("1.5")),
        ("DECIMAL(38, 0)", f'"{10**37}"', 10**37),
        ("DECIMAL(4, 2)", '"1.00"', 1),
        ("STRING", '"\U0001f600"', "\U0001f600"),
        ("BOOLEAN", "true", True),
        ("BIGINT", str(-(1 << 63)), -(1 << 63)),
    ],
)
def test_keys_that_are_equal_meet(tmp_path: Path, column: str, value: str, asked: Any) -> None:
    path = tmp_path / "c.json"
    path.write_text(f'{{"id": {value}, "name": "x", "more": [1.5, null]}}\n{{"id": null, "name": "y"}}\n')
    script = Script()
    script.run(
        f"CREATE TABLE o (id {column}) WITH ('topic' = 'o');"
        f"CREATE TABLE c (id {column}, name STRING, more ARRAY<DOUBLE>) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path}');"
        "EXPLAIN SELECT c.name, c.more FROM o JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON o.id = c.id;"
    )
    relation: Any = script.explained[0]
    while not isinstance(relation, LookupJoin):
        (relation,) = relation.inputs()
    dimension = dimension_of(relation.dimension, tuple(place for _, place in relation.keys), "job", Connection().of)
    get = dimensions.acquire(dimension).getter()
    try:
        ((_, *row),) = get(asked)
        assert row == ["x", [1.5, None]]
        assert not get("\udcff")
    finally:
        dimensions.close_all()
