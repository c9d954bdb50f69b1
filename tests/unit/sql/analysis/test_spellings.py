"""Two spellings of one query have one plan; what other systems write is refused with what is written here."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.scripts.script import Script

TABLE = (
    "CREATE TABLE t (id INT, k STRING, s STRING, v DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
    "WITH ('topic' = 't');"
)
SESSION = "TABLE(SESSION({}, DESCRIPTOR(ts), INTERVAL '30' SECOND))"
GAP = "(ts, INTERVAL '30' SECOND)"
MINUTE = "INTERVAL '1' MINUTE"
HOP = f"(ts, {MINUTE}, INTERVAL '2' MINUTE)"
OVER = "(PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
SAME = [
    (
        f"SELECT k, window_start, window_end, COUNT(*) FROM {SESSION.format('TABLE t PARTITION BY k')} "
        "WHERE v > 1 GROUP BY k, window_start, window_end HAVING COUNT(*) > 1",
        f"SELECT k, SESSION_START{GAP} AS window_start, SESSION_END{GAP} AS window_end, COUNT(*) FROM t "
        f"WHERE v > 1 GROUP BY k, SESSION{GAP} HAVING COUNT(*) > 1",
    ),
    (
        f"SELECT k, SESSION_PROCTIME{GAP} AS p FROM t GROUP BY k, SESSION{GAP} HAVING session_proctime{GAP} > MAX(ts)",
        f"SELECT k, PROCTIME() AS p FROM t GROUP BY k, SESSION{GAP} HAVING PROCTIME() > MAX(ts)",
    ),
    (
        f"SELECT COUNT(*) FROM (SELECT HOP_PROCTIME{HOP} AS p FROM t GROUP BY HOP{HOP}) GROUP BY TUMBLE(p, {MINUTE})",
        f"SELECT COUNT(*) FROM (SELECT PROCTIME() AS p FROM t GROUP BY HOP{HOP}) GROUP BY TUMBLE(p, {MINUTE})",
    ),
    (
        f"SELECT s, SUM(v) FROM {SESSION.format('DATA => TABLE t PARTITION BY (s, k)')} AS x "
        "GROUP BY window_start, x.window_end, x.k, s",
        f"SELECT s, SUM(v) FROM t GROUP BY SESSION{GAP}, k, s",
    ),
    (
        f"SELECT MAX(v) FROM {SESSION.format('TABLE (SELECT * FROM t WHERE id=1)')} GROUP BY window_start, window_end",
        f"SELECT MAX(v) FROM (SELECT * FROM t WHERE id = 1) GROUP BY SESSION{GAP}",
    ),
    (
        f"SELECT id, SUM(v) OVER w, AVG(v) OVER w + 1 FROM t WINDOW w AS {OVER}",
        f"SELECT id, SUM(v) OVER {OVER}, AVG(v) OVER {OVER} + 1 FROM t",
    ),
    (
        "SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER w AS n FROM t WINDOW x AS (ORDER BY ts), "
        "w AS (PARTITION BY k ORDER BY ts DESC)) WHERE n = 1",
        "SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM t) WHERE n = 1",
    ),
    ("SELECT k, APPROX_COUNT_DISTINCT(s) FROM t GROUP BY k", "SELECT k, COUNT(DISTINCT s) FROM t GROUP BY k"),
    ("SELECT JSON_OBJECTAGG(k VALUE v) FROM t", "SELECT JSON_OBJECTAGG(KEY k VALUE v NULL ON NULL) FROM t"),
    ("SELECT JSON_OBJECTAGG(k, v) FROM t", "SELECT JSON_OBJECTAGG(KEY t.k VALUE v NULL ON NULL) FROM t"),
    ("SELECT JSON_ARRAYAGG(v ABSENT ON NULL) FROM t", "SELECT JSON_ARRAYAGG(v) FROM t"),
    ("SELECT LISTAGG(s, ',') FROM t", "SELECT LISTAGG(s) FROM t"),
    ("SELECT s IS JSON VALUE FROM t", "SELECT s IS JSON FROM t"),
    (
        "SELECT DISTINCT * FROM (SELECT k, s FROM t) GROUP BY s, k",
        "SELECT DISTINCT k, s FROM (SELECT k, s FROM t) GROUP BY s, k",
    ),
    (
        "SELECT x.*, COUNT(*) FROM (SELECT k, s FROM t) AS x GROUP BY k, s",
        "SELECT x.k, x.s, COUNT(*) FROM (SELECT k, s FROM t) AS x GROUP BY k, s",
    ),
    (
        "SELECT x.id, y.id FROM ((t AS x JOIN t AS y ON x.k = y.k))",
        "SELECT x.id, y.id FROM t AS x JOIN t AS y ON x.k = y.k",
    ),
    (
        "SELECT x.id, z.id FROM (t AS x JOIN t AS y ON x.k = y.k) LEFT JOIN (SELECT * FROM t) AS z ON y.s = z.s",
        "SELECT x.id, z.id FROM t AS x JOIN t AS y ON x.k = y.k LEFT JOIN (SELECT * FROM t) AS z ON y.s = z.s",
    ),
]


OF_RSQLDB = """
CREATE TABLE `source` (field_1 INT, field_2 VARCHAR, `position` VARCHAR, ts as PROCTIME()) WITH (
    type = 'rocketmq', topic = 'a', groupName = 'g', data_format='json');
CREATE TABLE `sink` (field_1 INT, field_2 VARCHAR) WITH (topic = 'b', data_format='json');
CREATE TABLE timed (ms BIGINT, k VARCHAR, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH (topic = 'c', data_format='json');
insert into sink select field_1, field_2 from source where field_1=1 and field_2 like '%x' or field_1 between 1 and 10;
EXPLAIN SELECT `position`, avg(field_1) AS nums FROM source GROUP BY position;
EXPLAIN select TUMBLE_START(ts, INTERVAL '5' SECOND) AS window_start, position AS position, sum(field_1) AS total
from source where field_1 > 5 group by TUMBLE(ts, INTERVAL '5' SECOND), position having sum(field_1) < 20;
EXPLAIN SELECT SUM(a.field_1) as total, b.field_2 as kind FROM source AS a JOIN sink AS b ON a.field_2=b.field_2
GROUP BY b.field_2 HAVING SUM(a.field_1) > 20;
EXPLAIN SELECT k, COUNT(*) FROM timed GROUP BY TUMBLE(ts, INTERVAL '5' SECOND), k;
"""


def test_scripts_of_rsqldb_run() -> None:
    """As docs/migrate/rocketmq-streams.md says: what is not so is refused below."""
    script = Script()
    script.run(OF_RSQLDB)
    assert (len(script.sinks), len(script.explained)) == (1, 4)


def plan(query: str) -> str:
    script = Script()
    script.run(f"{TABLE} EXPLAIN {query};")
    return explain(script.explained)


@pytest.mark.parametrize(("one", "other"), SAME, ids=[one for one, _ in SAME])
def test_both_have_one_plan(one: str, other: str) -> None:
    assert plan(one) == plan(other)


REFUSED = {
    f"SELECT COUNT(*) FROM {SESSION.format('TABLE t PARTITION BY k')} GROUP BY window_start, window_end": (
        "GROUP BY takes the columns of SESSION's PARTITION BY: window_start, window_end, k"
    ),
    f"SELECT s, COUNT(*) FROM {SESSION.format('TABLE t PARTITION BY k')} GROUP BY window_start, window_end, k, s": (
        "GROUP BY takes the columns of SESSION's PARTITION BY"
    ),
    f"SELECT k FROM {SESSION.format('TABLE t PARTITION BY k')}": "rows of SESSION need GROUP BY window_start, w",
    f"SELECT a.k FROM {SESSION.format('TABLE t PARTITION BY k')} AS a JOIN t AS b ON a.id = b.id": "rows of SESSION",
    f"SELECT k, COUNT(*) FROM {SESSION.format('TABLE t PARTITION BY k')} WHERE id IN (SELECT id FROM t) "
    "GROUP BY k, window_start, window_end": "a sub-query cannot be combined with a window",
    f"SELECT 1 FROM {SESSION.format('TABLE t PARTITION BY kk')}": "there is no column kk: did you mean 'k'",
    "SELECT 1 FROM TABLE(TUMBLE(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' DAY))": "belongs to SESSION",
    "SELECT id, SUM(v) FROM t": "id is neither in GROUP BY nor in an aggregate function",
    'SELECT id FROM t WHERE s = "a"': "strings are in 'single quotes'",
    "SELECT id FROM t WHERE s = `a`": "there is no column a; there are id, k, s",
    "SELECT x.id FROM t AS x WHERE id > 3 JOIN t AS y ON x.k = y.k": "unexpected JOIN",
    "SELECT id FROM t WHERE id = 'a'": "INT and STRING cannot be compared: use CAST",
    "SELECT GROUP_CONCAT(s) FROM t GROUP BY k": "there is no function GROUP_CONCAT: use LISTAGG",
    "SELECT CONVERT(INT, s) FROM t": r"there is no function CONVERT: use CAST\(a AS type\)",
    "SELECT FOO(s) FROM t GROUP BY k": "there is no function FOO",
    "SELECT s::INT FROM t": r"a cast is CAST\(... AS type\), and not ::",
    "SELECT id & 1 FROM t": "there are no operators of bits",
    "SELECT (ts, ts) OVERLAPS (ts, ts) FROM t": r"OVERLAPS is not supported: \(a, b\) and \(c, d\) do so if",
    "SELECT id FROM t WHERE (ts, INTERVAL '1' DAY) OVERLAPS (ts, ts)": "OVERLAPS is not supported",
    "SELECT TOP 5 * FROM t": "TOP is not supported: use LIMIT",
    "SELECT LISTAGG(s) WITHIN GROUP (ORDER BY v) FROM t": "WITHIN GROUP is not supported: rows of a group",
    "SELECT id FROM default_catalog.t": "a table's name has one part, and catalogs are given by --catalog",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_written_otherwise_is_said(query: str) -> None:
    with pytest.raises(SqlError, match=REFUSED[query]):
        plan(query)


FORMS = {
    "CREATE TABLE a (id INT) WITH ('topic' = 'a') LIKE t": "CREATE TABLE ... LIKE is not supported: write the columns",
    "CREATE TABLE a LIKE t": "CREATE TABLE ... LIKE is not supported",
    "CREATE TABLE a AS SELECT id FROM t": "a table needs its columns: CREATE TABLE t",
    "CREATE TABLE a WITH ('topic' = 'a') AS SELECT id FROM t": "a table needs its columns",
    "CREATE TABLE a (id INT) WITH ('topic' = 'a') AS SELECT id FROM t": "CREATE TABLE ... AS SELECT is not supported",
    "CREATE OR REPLACE VIEW v AS SELECT 1": "CREATE OR REPLACE is not supported: DROP TABLE IF EXISTS",
    "CREATE TABLE a.b (id INT) WITH ('topic' = 'a')": "a table's name has one part",
    "CREATE TABLE a (x MULTISET<INT>) WITH ('topic' = 'a')": "MULTISET is not a type of columns",
    "CREATE FUNCTION f AS 'com.x.F' USING JAR 'x.jar'": "jars are not supported",
    "CREATE TABLE a (x INT) WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = 'x')": "connector is 'kafka'",
    "ADD JAR 'x.jar'": "jars are not supported",
    "LOAD MODULE hive": "modules are not supported",
    "COMPILE PLAN 'x' FOR INSERT INTO t SELECT 1": "COMPILE PLAN is not supported",
    "EXPLAIN ESTIMATED_COST SELECT id FROM t": "EXPLAIN takes nothing else",
    "INSERT INTO t PARTITION (k = 'x') SELECT id FROM t": "PARTITION is not supported",
    "SET execution.checkpointing.interval = 10s": "SET takes quotes: SET 'key' = 'value'",
    "SET a.b = 10s": "SET takes quotes: SET 'key' = 'value'",
}


@pytest.mark.parametrize("statement", FORMS)
def test_a_form_of_another_system_is_refused_by_name(statement: str) -> None:
    with pytest.raises(SqlError) as caught:
        Script().run(f"{TABLE} {statement};")
    assert caught.value.message.startswith(FORMS[statement])


def test_a_misplaced_word_is_not_taken_for_such_a_form() -> None:
    with pytest.raises(SqlError, match="unexpected INSERT: expected ';'"):
        Script().run(f"{TABLE} BEGIN STATEMENT SET INSERT INTO t SELECT id FROM t; END;")
