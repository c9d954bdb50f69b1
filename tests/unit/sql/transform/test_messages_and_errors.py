"""`SqlTransform`: messages as inputs, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import re
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp

import rmqio.sql
from rmqio import StartFrom, StopAt
from rmqio.errors import LocalError
from rmqio.sql import SqlTransform, element_time, row_time
from rmqio.sql.errors import SqlError
from rmqio.sql.transform.row_types import row_type
from rmqio.sql.types import SqlType
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms import ReadFromRocketMQ
from tests.unit.sql.transform.support import DDL, check, cluster, orders, pipeline, run

__all__ = ["cluster", "pipeline"]


@pytest.mark.parametrize("reading", ["batches", "batches with times", "records"])
def test_messages_are_an_input(cluster: InMemoryCluster, pipeline: beam.Pipeline, reading: str) -> None:
    for n in range(40):
        body = {"id": n, "ts": str(dt.datetime(2024, 1, 1) + dt.timedelta(seconds=3 * n))}
        cluster.append("t", json.dumps(body).encode(), queue_id=n % 2, tags="a" if n % 4 else None)
    cluster.append("t", b"{", queue_id=0)
    time: dict[str, Any] = {"timestamp": row_time(DDL)} if reading == "batches with times" else {}
    read = ReadFromRocketMQ(
        "t", start=StartFrom.earliest(), stop=StopAt.latest(), batches=reading != "records",
        client_factory=InMemoryClientFactory(cluster.name), **time,
    )  # fmt: skip
    text = """SELECT window_start AS s, COUNT(*) AS n, COUNT(tag) AS tags
              FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"""
    messages = pipeline | read
    result = messages | SqlTransform(text, {"t": DDL}, on_error="output")
    plain = messages | "plain" >> SqlTransform("SELECT id, ts FROM t WHERE id = 0", {"t": DDL}, on_error="skip")
    stamps = plain | beam.Map(lambda row, at=beam.DoFn.TimestampParam: (row.id, row.ts == at))
    assert_that(stamps, equal_to([(0, True)]), label="stamps")
    start = Timestamp.from_rfc3339("2024-01-01T00:00:00Z")
    check(result.rows, [(start, 20, 15), (start + 60, 20, 15)])
    reasons = result.errors | "reasons" >> beam.Map(
        lambda row: (row.table, row.row, "t/broker-a/0, offset 20" in row.reason)
    )
    assert_that(reasons, equal_to([("t", "{", True)]), label="bad")
    run(pipeline)


def test_tables_of_the_text_are_read(cluster: InMemoryCluster, pipeline: beam.Pipeline) -> None:
    cluster.append("t", b'{"a": 1}')
    cluster.append("t", b'{"a": 2}')
    text = "CREATE TABLE t (a INT) WITH ('topic' = 't'); SELECT a, o.amount FROM t JOIN o ON t.a = o.id"
    rows = {"o": orders(pipeline)} | SqlTransform(
        text, start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name),
        settings={"table.exec.state.ttl": 3_600_000, "table.exec.emit.early-fire.enabled": True},
    )  # fmt: skip
    check(rows, [(1, Decimal(10)), (2, Decimal(20))])
    run(pipeline)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT idd FROM PCOLLECTION",
         "line 1:8: there is no column idd: did you mean 'id'?\n  SELECT idd FROM PCOLLECTION\n         ^^^"),
        ("SELECT id FROM PCOLECTION", "there is no table PCOLECTION: did you mean 'PCOLLECTION'?"),
        ("SELECT COUNT(*) FROM PCOLLECTION", "column 1 of the result has no name: give it one with AS"),
        ("SELECT id, id FROM PCOLLECTION", "the result has two columns id: give one another name with AS"),
        ("SELECT id AS `a b` FROM PCOLLECTION", "the column a b has no name that a field in Python can have"),
        ("SELECT id AS `class` FROM PCOLLECTION", "the column class has no name that a field in Python can have"),
        ("SELECT id AS _id FROM PCOLLECTION", "the column _id has no name that a field in Python can have"),
        ("SELECT NULL AS a FROM PCOLLECTION", "the column a is NULL, which has no type in Python: use CAST"),
        ("SELECT INTERVAL '1' DAY AS a FROM PCOLLECTION", "which has no type in Python: use CAST"),
        ("INSERT INTO PCOLLECTION SELECT 1", "INSERT INTO returns no rows: end with SELECT"),
        ("EXPLAIN SELECT id FROM PCOLLECTION", "EXPLAIN returns no rows"),
        ("CREATE VIEW v AS SELECT 1 AS a", "the text ends without a query: SELECT ..."),
        ("SELECT id FROM PCOLLECTION; SELECT 1 AS a", "nothing can follow the query"),
        ("CREATE VIEW PCOLLECTION AS SELECT 1 AS a; SELECT 1 AS a", "there is a table PCOLLECTION already"),
    ],
)  # fmt: skip
def test_texts_that_are_refused(pipeline: beam.Pipeline, text: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        orders(pipeline) | SqlTransform(text)


def test_a_text_that_does_not_parse_is_refused_at_once() -> None:
    with pytest.raises(SqlError, match="the statement is not complete"):
        SqlTransform("SELECT")
    with pytest.raises(SqlError, match="the text has no statement"):
        SqlTransform("-- nothing")


QUERY = "SELECT 1 AS a FROM PCOLLECTION"


@pytest.mark.parametrize(
    ("elements", "kind", "message"),
    [
        ([1], int, "the elements of PCOLLECTION have no schema: they are int"),
        ([{"a": 1}], dict[str, int], "have no schema"),
        ([beam.Row(a={1})], beam.typehints.row_type.RowTypeConstraint.from_fields([("a", set[int])]),
         "which SQL does not have; it has bool"),
    ],
)  # fmt: skip
def test_elements_that_are_no_rows(pipeline: beam.Pipeline, elements: list[Any], kind: Any, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        pipeline | beam.Create(elements).with_output_types(kind) | SqlTransform(QUERY)


def test_what_does_not_fit_the_inputs_is_refused(pipeline: beam.Pipeline) -> None:
    rows = orders(pipeline)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (rows, {"rowtime": "idd"}, "rowtime is 'idd', which is not a column of PCOLLECTION: did you mean 'id'?"),
        (rows, {"rowtime": "id"}, "rowtime is a Timestamp or a datetime, and id is BIGINT"),
        (rows, {"rowtime": element_time("id")}, "PCOLLECTION has a column id already"),
        (rows, {"rowtime": {"x": "id"}}, "rowtime names 'x', which is not an input"),
        (rows, {"tables": {"PCOLLECTION": "(a INT)"}}, "PCOLLECTION has rows, which need no CREATE TABLE"),
        ({"a": rows, "b": rows}, {"rowtime": "id"}, "for several inputs, rowtime must be a dict by their names"),
        ({"a": rows}, {"tables": {"c": None}}, "tables names 'c', which is not an input"),
        (
            (rows, rows),
            {},
            "the input of SqlTransform is a PCollection, a dict of PCollections by name, or the pipeline",
        ),
        (rows, {"settings": {"table.exec.state.tll": "1 h"}}, "settings: there is no setting 'table.exec.state.tll'"),
        (rows, {"settings": {5: "1 h"}}, "settings: there is no setting '5'"),
        (
            rows,
            {"settings": {"table.exec.state.ttl": None}},
            "settings: table.exec.state.ttl is empty; it must be text",
        ),
        (
            rows,
            {"settings": {"table.exec.emit.late-fire.enabled": [1]}},
            "late-fire.enabled is a list; it must be text",
        ),
        (rows, {"settings": {"parallelism.default": 0}}, "parallelism.default is '0'; it must be a whole number"),
        (rows, {"settings": {"table.exec.emit.early-fire.enabled": 1}}, "'1' is neither 'true' nor 'false'"),
    ]
    for number, (given, how, message) in enumerate(cases):
        with pytest.raises((LocalError, SqlError), match=re.escape(message)):
            given | f"{number}" >> SqlTransform(QUERY, **how)
    with pytest.raises(LocalError, match="on_error is 'outputs'"):
        SqlTransform(QUERY, on_error="outputs")
    windowed = rows | beam.WindowInto(beam.window.FixedWindows(1))
    with pytest.raises(SqlError, match=r"t is in windows of Beam \(FixedWindows\), and the query has its own"):
        windowed | "windowed" >> SqlTransform("SELECT COUNT(*) AS n FROM t", "t")
    with pytest.raises(SqlError, match=r"t is in windows of Beam \(FixedWindows\), and other inputs are not: put"):
        {"t": windowed, "u": rows} | "both" >> SqlTransform("SELECT id FROM t UNION ALL SELECT id FROM u")
    with pytest.raises(SqlError, match="the table has no WATERMARK FOR"):
        row_time("(a INT)")
    with pytest.raises(SqlError, match="table t:1:26"):
        row_time("(a INT, a INT)")


PLACES = [
    ("SELECT 1 AS b,\n  COUNT(*) AS n\nFROM t GROUP BY a", "line 3:17: GROUP BY without a window"),
    ("SELECT x.a\nFROM t AS x LEFT JOIN t AS y ON x.a = y.a", "line 2:6: LEFT JOIN of rows that do not end"),
    ("SELECT a FROM t ORDER BY a", "line 1:26: ORDER BY needs an input that ends"),
    ("SELECT a, SUM(a) OVER (ORDER BY ts) AS s FROM t", "line 1:18: OVER of rows without end waits"),
    ("CREATE VIEW v AS SELECT DISTINCT a FROM t;\nSELECT a FROM v", "line 1:18: DISTINCT"),
    ("SET 'table.exec.state.ttl' = '1 h';\nSELECT a, a FROM t", "line 2:1: the result has two columns a"),
]


def test_rows_that_would_change_are_refused(cluster: InMemoryCluster, pipeline: beam.Pipeline) -> None:
    endless = pipeline | ReadFromRocketMQ("t", batches=True, client_factory=InMemoryClientFactory(cluster.name))
    with pytest.raises(SqlError, match="GROUP BY without a window: its rows change, and an output of rows cannot"):
        endless | SqlTransform("SELECT COUNT(*) AS n FROM t", {"t": "(a INT)"})
    for number, (text, place) in enumerate(PLACES):
        with pytest.raises(SqlError, match=f"^{re.escape(place)}") as caught:
            endless | f"{number}" >> SqlTransform(text, {"t": "(a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"})
        shown, carets = str(caught.value).splitlines()[1:]
        assert shown == f"  {text.splitlines()[caught.value.line - 1]}"
        assert carets.index("^") == caught.value.column + 1
    with pytest.raises(SqlError, match=re.escape("t has messages: tables={'t': 'CREATE TABLE ...'}")):
        {"t": endless} | "without" >> SqlTransform("SELECT COUNT(*) AS n FROM t")


def test_rows_are_pickled_though_their_class_is_nowhere() -> None:
    spec = (("a", SqlType("BIGINT")), ("b", SqlType("ROW", elements=(SqlType("DATE"),), names=("c",))))
    row = row_type(spec)(1, row_type((("c", SqlType("DATE")),))(dt.date(2024, 1, 1)))
    assert pickle.loads(pickle.dumps(row)) == row
    assert type(pickle.loads(pickle.dumps(row))) is row_type(spec)


def test_sql_is_imported_when_it_is_asked_for() -> None:
    import subprocess
    import sys

    code = "import sys, rmqio.sql; print(sorted({'lark', 'apache_beam', 'msgspec'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() in ("[]", "['apache_beam']")
    with pytest.raises(AttributeError, match="has no attribute 'SqlTransforms'"):
        _ = rmqio.sql.SqlTransforms
