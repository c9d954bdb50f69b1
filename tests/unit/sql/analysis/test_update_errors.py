"""Statements with ROW_NUMBER(), EMIT and rows that change that are not valid: each with its whole message and place."""

from __future__ import annotations

import apache_beam as beam
import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.planning.checks import GIVES_END
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory
from tests.unit.sql.endings import run_endless

TABLES = """
CREATE TABLE t (
  id BIGINT NOT NULL, k STRING, v INT, tags ARRAY<STRING>, ts TIMESTAMP(3), pt AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('topic' = 't');
"""
WINDOW = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"
NUMBER = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY v)"
LIMIT = "WHERE rn <= 10, where rn is its name, in an outer query"

ALL = f"ROW_NUMBER() of all rows would keep all of them: it needs {LIMIT}. {GIVES_END}"
NONE = f"ROW_NUMBER() begins at 1, and {{}} holds for no row: {LIMIT}, keeps the first 10"


def ranked(number: str = NUMBER, where: str = "rn <= 3") -> str:
    return f"SELECT id FROM (SELECT *, {number} AS rn FROM t) AS r WHERE {where}"


# A query, what the caret shows, and the message.
QUERIES = [
    (ranked(where="rn > 3"), NUMBER, ALL),
    (ranked(where="rn <= v"), NUMBER, ALL),
    (ranked(where="rn <= 3 OR v = 1"), NUMBER, ALL),
    (ranked(where="rn <= 0"), NUMBER, NONE.format("<= 0")),
    (ranked(where="v = 1 AND 1 > rn"), NUMBER, NONE.format("< 1")),
    (ranked(where="rn = -3"), NUMBER, NONE.format("= -3")),
    (ranked(where="rn < 20000"), NUMBER,
     "19999 rows of each partition would be kept and sorted; at most 10000 are allowed"),
    (f"SELECT id, {NUMBER} FROM t", NUMBER, ALL),
    (f"SELECT {NUMBER} + 1 FROM t", NUMBER,
     f"ROW_NUMBER() must be a column of its own in SELECT, as ROW_NUMBER() OVER (...) AS rn, with {LIMIT}"),
    (f"SELECT id FROM t WHERE {NUMBER} = 1", NUMBER,
     f"ROW_NUMBER() must be a column of its own in SELECT, as ROW_NUMBER() OVER (...) AS rn, with {LIMIT}"),
    ("SELECT ROW_NUMBER() FROM t", "ROW_NUMBER()",
     f"ROW_NUMBER() must be a column of its own in SELECT, as ROW_NUMBER() OVER (...) AS rn, with {LIMIT}"),
    (ranked("ROW_NUMBER() OVER (PARTITION BY k)"), "OVER (PARTITION BY k)",
     "ROW_NUMBER() needs an order: OVER (PARTITION BY key ORDER BY column)"),
    (ranked("ROW_NUMBER() OVER (ORDER BY 1)"), "1", "ORDER BY takes columns, not positions or constants"),
    (ranked("ROW_NUMBER() OVER (ORDER BY tags)"), "tags", "ARRAY<STRING> has no order: ORDER BY cannot take it"),
    (ranked("ROW_NUMBER() OVER (PARTITION BY tags ORDER BY v)"), "tags",
     "a column of PARTITION BY cannot be ARRAY<STRING>: use JSON_STRING of it"),
    (ranked("ROW_NUMBER() OVER (ORDER BY vv)"), "vv", "there is no column vv: did you mean 'v'?"),
    (ranked("ROW_NUMBER() OVER (ORDER BY SUM(v))"), "SUM(v)",
     "SUM is an aggregate function, which cannot be used in ORDER BY"),
    (ranked("ROW_NUMBER() OVER (ORDER BY v ROWS UNBOUNDED PRECEDING)"), "ROWS UNBOUNDED PRECEDING",
     "ROW_NUMBER() takes no ROWS or RANGE"),
    (ranked("ROW_NUMBER(v) OVER (ORDER BY v)"), "ROW_NUMBER(v) OVER (ORDER BY v)", "ROW_NUMBER() takes no arguments"),
    (f"SELECT {NUMBER} AS a, ROW_NUMBER() OVER (ORDER BY id) AS b FROM t", "ROW_NUMBER() OVER (ORDER BY id) AS b",
     "a query can have only one ROW_NUMBER(): put the other one into an outer query"),
    (f"SELECT k, {NUMBER} AS rn FROM t GROUP BY k", NUMBER,
     "ROW_NUMBER() cannot be combined with GROUP BY: put GROUP BY into a query of FROM"),
    (f"SELECT DISTINCT k, {NUMBER} AS rn FROM t", NUMBER,
     "numbered rows are distinct: remove DISTINCT"),
    ("SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS rn FROM "
     "TABLE(TUMBLE(TABLE t, DESCRIPTOR(pt), INTERVAL '1' DAY))) AS r WHERE rn = 1",
     "TABLE(TUMBLE(TABLE t, DESCRIPTOR(pt), INTERVAL '1' DAY))",
     "rows of windows of processing time need GROUP BY window_start, window_end"),
    ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE (SELECT ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY "
     "ts) AS rn FROM t) AS r WHERE rn <= 2), DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end",
     "ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts)",
     "first rows that change have no watermark; only the first row by time has one"),
    ("SELECT k, COUNT(*) FROM t GROUP BY k EMIT WITH DELAY '1' MINUTE BEFORE WATERMARK",
     "WITH DELAY '1' MINUTE BEFORE WATERMARK", "EMIT needs a window, but this GROUP BY has none"),
    ("SELECT k FROM t EMIT ON WINDOW CLOSE", "ON WINDOW CLOSE",
     "EMIT needs a window, but this query has no GROUP BY"),
    (f"SELECT COUNT(*) {WINDOW} EMIT CHANGES, ON WINDOW CLOSE", "ON WINDOW CLOSE",
     "EMIT CHANGES and EMIT ON WINDOW CLOSE cannot be combined with other EMIT clauses"),
    (f"SELECT COUNT(*) {WINDOW} EMIT WITHOUT DELAY AFTER WATERMARK", "WITHOUT DELAY AFTER WATERMARK",
     "rows after the watermark are dropped, unless SET 'table.exec.emit.allow-lateness' = '1 min' says how long they "
     "count"),
    (f"SELECT COUNT(*) {WINDOW} EMIT WITH DELAY '1' SECOND BEFORE WATERMARK, WITHOUT DELAY BEFORE WATERMARK",
     "WITHOUT DELAY BEFORE WATERMARK", "EMIT has two clauses for the time BEFORE the watermark"),
    (f"SELECT COUNT(*) {WINDOW} EMIT WITH DELAY '1' MONTH BEFORE WATERMARK", "WITH DELAY '1' MONTH BEFORE WATERMARK",
     "the delay must be in days, hours, minutes or seconds"),
    ("SELECT COUNT(*) FROM t GROUP BY SESSION(ts, INTERVAL '1' MINUTE) EMIT CHANGES", "CHANGES",
     "a session can grow, so earlier rows would be those of other sessions: use EMIT ON WINDOW CLOSE"),
    ("SELECT COUNT(*) FROM t GROUP BY TUMBLE(pt, INTERVAL '1' MINUTE) EMIT CHANGES", "CHANGES",
     "windows of processing time emit at their ends, by the clock: EMIT cannot be used with them"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "shown", "message"), QUERIES, ids=[each[0] for each in QUERIES])
def test_queries(query: str, shown: str, message: str) -> None:
    text = f"EXPLAIN {query};"
    with pytest.raises(SqlError) as caught:
        run_endless(f"{TABLES}{text}")
    assert caught.value.message == message
    start = caught.value.column - 1
    assert text[start : start + caught.value.shown.count("^")] == shown


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SET 'table.exec.emit.early-fire.enabled' = 'yes'", "'yes' is neither 'true' nor 'false'"),
        ("SET 'table.exec.emit.early-fire.delay' = 'soon'", "'soon' is not a time; it must be like '1 h'"),
        ("SET 'table.exec.emit.early-fire.delays' = '1 s'",
         "there is no setting 'table.exec.emit.early-fire.delays': did you mean 'table.exec.emit.early-fire.delay'?"),
    ],
)  # fmt: skip
def test_settings(statement: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        Script().run(statement)
    assert caught.value.message == message


ENDS = "a window, or --stop latest, gives rows that do not change"
TOP = "SELECT {} FROM (SELECT *, ROW_NUMBER() OVER ({}) AS rn FROM {}) AS r WHERE rn <= {}"
GROUPS = "(SELECT k, SUM(v) AS v FROM t GROUP BY k) AS g"
KEY = "PRIMARY KEY (k) NOT ENFORCED"
STAYS = "the row would also stay in the topic where it was"
ALONE = "compute it from the PRIMARY KEY alone, k"
EARLY = f"SELECT window_start, k, COUNT(*) {WINDOW}, k EMIT CHANGES"


@pytest.mark.parametrize(
    ("columns", "query", "reason"),
    [
        ("id BIGINT, k STRING", TOP.format("id, k", "PARTITION BY k ORDER BY v", "t", 1),
         f"a top-n: its rows change, and s has no PRIMARY KEY by which they do: {ENDS}"),
        ("id BIGINT, k STRING, PRIMARY KEY (id) NOT ENFORCED", TOP.format("id, k", "PARTITION BY k ORDER BY v", "t", 2),
         "a top-n: the PRIMARY KEY of s (id) lacks the columns of PARTITION BY, k"),
        ("id BIGINT, k STRING, PRIMARY KEY (k) NOT ENFORCED", TOP.format("id, k", "PARTITION BY k ORDER BY v", "t", 2),
         "a top-n: several rows of a partition have one PRIMARY KEY: add the number of the row, or a column"),
        ("k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED", TOP.format("k, v", "PARTITION BY v ORDER BY k", GROUPS, 1),
         "PARTITION BY takes what its rows are grouped by only, as they change: a row that goes into another partition "
         f"could not leave the one before; or {ENDS}"),
        ("k STRING, v BIGINT, PRIMARY KEY (k) NOT ENFORCED",
         f"SELECT k, COUNT(*) FROM ({TOP.format('k, id', 'PARTITION BY k ORDER BY v', 't', 2)}) AS x GROUP BY k",
         f"GROUP BY groups the rows of a top-n, which change: {ENDS}"),
        ("k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED",
         TOP.format("k, v", "PARTITION BY k ORDER BY v",
                    f"({TOP.format('k, v', 'PARTITION BY k ORDER BY id DESC', 't', 1)}) AS x", 1),
         f"ROW_NUMBER() numbers the rows of a top-n, which change: {ENDS}"),
        ("k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED", f"SELECT k, v FROM {GROUPS} WHERE RAND() > v",
         "GROUP BY without a window: a condition differs from call to call, so that it does not tell which rows are "
         "there"),
        ("s TIMESTAMP(3), k STRING, v BIGINT", EARLY,
         f"EMIT before the end of a window: its rows change, and s has no PRIMARY KEY by which they do: {ENDS}"),
        ("s TIMESTAMP(3), k STRING, v BIGINT, PRIMARY KEY (k) NOT ENFORCED", EARLY,
         f"EMIT before the end of a window: the PRIMARY KEY of s (k) is not what the rows are grouped by: {ENDS}"),
        (f"k STRING, v BIGINT, place STRING METADATA FROM 'topic', {KEY}",
         "SELECT k, COUNT(*), IF(COUNT(*) > 2, 'large', 'small') FROM t GROUP BY k",
         f"GROUP BY without a window: place, the topic of the message, can change with the row, and {STAYS}: {ALONE}"),
        (f"k STRING, v BIGINT, place STRING METADATA FROM 'topic', {KEY}",
         "SELECT k, COUNT(*), IF(RAND() > 2, 'large', k) FROM t GROUP BY k",
         "GROUP BY without a window: place, the topic of the message, differs from call to call, so that " + STAYS),
        (f"k STRING, v INT, place STRING METADATA FROM 'topic', {KEY}",
         TOP.format("k, v, IF(RAND() > 2, 'large', k)", "PARTITION BY k ORDER BY id DESC", "t", 1),
         "a top-n: place, the topic of the message, differs from call to call, so that " + STAYS),
        (f"k STRING, v INT, sharding_key STRING METADATA, {KEY}",
         TOP.format("k, v, CAST(v AS STRING)", "PARTITION BY k ORDER BY id DESC", "t", 1),
         "a top-n: sharding_key, the sharding_key of the message, can change with the row, and its versions would be "
         f"in several queues, which have no order: {ALONE}"),
        (f"k STRING, v BIGINT, delay_level INT METADATA, {KEY}", "SELECT k, COUNT(*), 3 FROM t GROUP BY k",
         "GROUP BY without a window: delay_level delays messages, and a row that waits could arrive after a newer one, "
         "or after it was deleted: leave delay_level out, INSERT INTO s (k, v)"),
    ],
)  # fmt: skip
def test_what_a_table_cannot_take(columns: str, query: str, reason: str) -> None:
    script = Script()
    script.run(f"{TABLES} CREATE TABLE s ({columns}) WITH ('topic' = 's'); INSERT INTO s {query};")
    translation = Translation(beam.Pipeline(), Connection(client_factory=InMemoryClientFactory("none")))
    with pytest.raises(SqlError) as caught:
        translation.add(script.sinks[0])
    assert caught.value.message == f"INSERT INTO s: {reason}"


@pytest.mark.parametrize(
    ("columns", "query"),
    [
        (f"k STRING, v BIGINT, place STRING METADATA FROM 'topic', sharding_key STRING METADATA, {KEY}",
         "SELECT k, COUNT(*), IF(k < 'c', 'a', 'b'), UPPER(k) FROM t GROUP BY k"),
        ("s TIMESTAMP(3), k STRING, v BIGINT, place STRING METADATA FROM 'topic', PRIMARY KEY (k, s) NOT ENFORCED",
         EARLY.replace("COUNT(*)", "COUNT(*), DATE_FORMAT(window_end, 'yyyy-MM')", 1)),
        (f"k STRING, v INT, place STRING METADATA FROM 'topic', sharding_key STRING METADATA, {KEY}",
         TOP.format("k, v, CAST(v AS STRING), k", "PARTITION BY k ORDER BY id DESC", "t", 1)),
    ],
)  # fmt: skip
def test_metadata_that_follows_from_the_key_and_topics_of_first_rows_are_written(columns: str, query: str) -> None:
    run_endless(f"{TABLES} CREATE TABLE s ({columns}) WITH ('topic' = 's'); INSERT INTO s {query};")
