"""Sub-queries, OVER, ORDER BY and set operations that are not valid: each with its whole message."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script

TABLES = """
CREATE TABLE t (a INT, b STRING, c ARRAY<INT>, ts TIMESTAMP(3), day DATE, WATERMARK FOR ts AS ts) WITH ('topic' = 't');
CREATE TABLE u (a INT, b STRING, x BIGINT) WITH ('topic' = 'u');
CREATE TABLE sink (a BIGINT) WITH ('topic' = 'sink');
"""
WINDOW = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"

# A query, the text under the carets, and the message.
QUERIES = [
    ("SELECT a FROM t WHERE a IN (SELECT a, b FROM u)", "a IN (SELECT a, b FROM u)",
     "IN compares 1 value with 2 columns"),
    ("SELECT a FROM t WHERE (a, b) IN (SELECT a FROM u)", "(a, b) IN (SELECT a FROM u)",
     "IN compares 2 values with 1 columns"),
    ("SELECT a FROM t WHERE a IN (SELECT b FROM u)", "a IN (SELECT b FROM u)",
     "INT and STRING cannot be compared: use CAST"),
    ("SELECT a FROM t WHERE a IN (SELECT aa FROM u)", "aa", "there is no column aa: did you mean 'a'?"),
    ("SELECT a FROM t WHERE a IN (SELECT a FROM uu)", "uu", "there is no table uu: did you mean 'u'?"),
    ("SELECT a FROM t WHERE (a, b) NOT IN (SELECT a, b FROM u)", "(a, b) NOT IN (SELECT a, b FROM u)",
     "NOT IN, or IN in a larger condition, of a row whose columns can be NULL is not supported: use [NOT] EXISTS with "
     "equalities"),
    ("SELECT a FROM t WHERE a NOT IN (SELECT a FROM u WHERE u.b < t.b AND u.a = t.a)",
     "a NOT IN (SELECT a FROM u WHERE u.b < t.b AND u.a = t.a)",
     "NOT IN, or IN in a larger condition, of a query with such a condition whose columns can be NULL is not "
     "supported: use [NOT] EXISTS with equalities"),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a > t.a)", "EXISTS (SELECT 1 FROM u WHERE u.a > t.a)",
     "a sub-query with outer columns needs an equality between one of its own columns and an outer one"),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.aa)", "aa",
     "there is no column aa in t: did you mean 'a'?"),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.b)", "u.a = t.b",
     "INT and STRING cannot be compared: use CAST"),
    ("SELECT a FROM t WHERE EXISTS (SELECT nothing FROM u)", "nothing",
     "there is no column nothing; there are a, b, x"),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = v.a)", "v",
     "there is no column v; there are a, b, x"),
    ("SELECT a FROM t WHERE a = (SELECT a FROM u WHERE u.b = t.b ORDER BY a LIMIT 1)",
     "SELECT a FROM u WHERE u.b = t.b ORDER BY a LIMIT 1",
     "ORDER BY and LIMIT cannot be used in a sub-query that reads outer columns"),
    ("SELECT a FROM t WHERE a > (SELECT MAX(a) FROM u WHERE u.b = t.b AND u.a < t.a)",
     "SELECT MAX(a) FROM u WHERE u.b = t.b AND u.a < t.a",
     "a sub-query with aggregates can use outer columns only in equalities of columns"),
    ("SELECT a FROM t WHERE a > (SELECT a FROM u WHERE u.a < t.a)", "(SELECT a FROM u WHERE u.a < t.a)",
     "a sub-query as a value can use outer columns only in equalities of columns"),
    ("SELECT (SELECT a, b FROM u) FROM t", "(SELECT a, b FROM u)",
     "a sub-query as a value must have one column, but this one has 2"),
    ("SELECT COUNT(*) FROM t GROUP BY (SELECT MAX(a) FROM u)", "(SELECT MAX(a) FROM u)",
     "a sub-query cannot be used in GROUP BY, only in SELECT, WHERE and HAVING"),
    ("SELECT b FROM t GROUP BY b HAVING MAX(a) > (SELECT MAX(a) FROM u WHERE u.b = t.b)",
     "(SELECT MAX(a) FROM u WHERE u.b = t.b)",
     "a sub-query that reads outer columns cannot be combined with GROUP BY: group in a sub-query of FROM "
     "first"),
    (f"SELECT COUNT(*) {WINDOW} WHERE a IN (SELECT a FROM u) GROUP BY window_start, window_end",
     "a IN (SELECT a FROM u)",
     "a sub-query cannot be combined with a window: put the window, or its groups, into a sub-query of FROM"),
    (f"SELECT a {WINDOW} AS p WHERE EXISTS (SELECT a FROM u)", "EXISTS (SELECT a FROM u)",
     "a sub-query cannot be combined with a window: put the window, or its groups, into a sub-query of FROM"),
    ("SELECT t.a FROM t JOIN u ON t.a IN (SELECT a FROM u)", "t.a IN (SELECT a FROM u)",
     "a sub-query cannot be used in ON, only in SELECT, WHERE and HAVING"),
    ("SELECT SUM(b) OVER (ORDER BY ts) FROM t", "SUM(b) OVER (ORDER BY ts)", "SUM takes numbers, not STRING"),
    ("SELECT COUNT(DISTINCT a) OVER (ORDER BY ts) FROM t", "COUNT(DISTINCT a) OVER (ORDER BY ts)",
     "DISTINCT before OVER is not supported: the rows of a frame are not kept apart"),
    ("SELECT SUM(*) OVER (ORDER BY ts) FROM t", "SUM(*) OVER (ORDER BY ts)",
     "SUM(*) has no meaning: SUM takes a column"),
    ("SELECT SUM(a) OVER (ORDER BY ts RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) FROM t", "3",
     "RANGE goes back by an INTERVAL of days, hours, minutes or seconds: INTERVAL '1' HOUR"),
    ("SELECT SUM(a) OVER (ORDER BY ts ROWS BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW) FROM t",
     "INTERVAL '1' DAY", "ROWS goes back by a whole number of rows"),
    ("SELECT SUM(a) OVER (ORDER BY ts ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM t", "-1",
     "a frame goes back by a constant that is not negative"),
    ("SELECT SUM(a) OVER (ORDER BY ts) FROM t GROUP BY a", "SUM(a) OVER (ORDER BY ts)",
     "OVER cannot be combined with GROUP BY: group in a sub-query of FROM first"),
    ("SELECT a FROM t WHERE SUM(a) OVER (ORDER BY ts) > 1", "OVER (ORDER BY ts)",
     "OVER cannot be used in WHERE: use it in SELECT, and test it in an outer query"),
    ("SELECT SUM(a) OVER (ORDER BY ts) FROM t WHERE a IN (SELECT a FROM u)", "SUM(a) OVER (ORDER BY ts)",
     "OVER cannot be used in a query with a sub-query: its rows no longer have a watermark. Move OVER into a "
     "sub-query of FROM"),
    ("SELECT LAG(a, b) OVER (ORDER BY ts) FROM t", "b", "how far LAG goes back is a number of rows: 1, 2 ..."),
    ("SELECT LAG(a, 1, 'x') OVER (ORDER BY ts) FROM t", "'x'",
     "LAG has values of INT and STRING, which have no common type: use CAST"),
    ("SELECT LAG(a) OVER (ORDER BY ts ROWS 1 PRECEDING) FROM t", "ROWS 1 PRECEDING",
     "LAG takes no ROWS or RANGE: its second argument says how far it goes back"),
    ("SELECT SUM(a) OVER (PARTITION BY c ORDER BY ts) FROM t", "c",
     "a key of PARTITION BY cannot be ARRAY<INT>: use JSON_STRING of it"),
    (f"SELECT RANK() OVER (ORDER BY a) {WINDOW}", "OVER (ORDER BY a)",
     "OVER cannot be combined with a window: put the window, or its groups, into a sub-query of FROM"),
    ("SELECT SUM(a) OVER (ORDER BY ts RANGE INTERVAL '1' HOUR PRECEDING), RANK() OVER (ORDER BY ts) FROM t",
     "INTERVAL '1' HOUR",
     "RANGE by an interval cannot stand beside OVERs of another PARTITION BY or ORDER BY, or that need all rows: "
     "compute it in a sub-query of FROM"),
    (f"SELECT COUNT(*) OVER (ORDER BY ts) {WINDOW}", "OVER (ORDER BY ts)",
     "OVER cannot be combined with a window: put the window, or its groups, into a sub-query of FROM"),
    ("SELECT a FROM t ORDER BY 3", "3", "ORDER BY takes the positions 1 to 1, not 3"),
    ("SELECT a FROM t ORDER BY 'a'", "'a'", "ORDER BY takes columns, expressions of them, or positions"),
    ("SELECT a FROM t ORDER BY c", "c", "ARRAY<INT> has no order: ORDER BY cannot compare it"),
    ("SELECT DISTINCT a FROM t ORDER BY b", "b",
     "ORDER BY of SELECT DISTINCT takes columns of SELECT: others can differ between equal rows"),
    ("SELECT a FROM t UNION ALL SELECT a FROM u ORDER BY b", "b", "there is no column b"),
    ("SELECT a FROM t UNION ALL SELECT a FROM u ORDER BY a + 1", "a + 1",
     "ORDER BY of UNION, EXCEPT, INTERSECT and VALUES takes names or positions of columns"),
    ("SELECT a FROM t LIMIT 2000000", "SELECT a FROM t LIMIT 2000000",
     "LIMIT and OFFSET reach to row 2,000,000, but one worker sorts at most 1,000,000 rows"),
    ("SELECT a FROM t LIMIT 1.5", "1.5", "1.5 is not a whole number"),
    ("SELECT c FROM t EXCEPT SELECT c FROM t", "SELECT c FROM t EXCEPT SELECT c FROM t",
     "c cannot be ARRAY<INT>: use JSON_STRING of it"),
    ("SELECT a FROM t INTERSECT SELECT b FROM u", "SELECT b FROM u",
     "INTERSECT cannot combine a, INT, with b, STRING: use CAST"),
    ("SELECT a FROM t EXCEPT ALL SELECT a, b FROM u", "SELECT a, b FROM u",
     "EXCEPT ALL needs the same number of columns on both sides, not 1 and 2"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "marked", "message"), QUERIES, ids=[each[0] for each in QUERIES])
def test_queries(query: str, marked: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        Script().run(f"{TABLES}EXPLAIN {query}", "job.sql")
    assert caught.value.message == message
    assert caught.value.line == TABLES.count("\n") + 1
    shown, carets = caught.value.shown.splitlines()
    assert shown[carets.index("^") :].startswith(marked), caught.value
    assert carets.count("^") == len(marked), caught.value


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a FROM (SELECT * {WINDOW}) AS p WHERE EXISTS (SELECT 1 FROM (SELECT * {WINDOW}) AS q WHERE q.a = p.a)",
        f"SELECT a FROM (SELECT a, MAX(b) {WINDOW} GROUP BY a, window_start, window_end) WHERE a IN (SELECT a FROM u)",
        f"SELECT SUM(a) OVER (ORDER BY ts) FROM (SELECT * {WINDOW})",
        "SELECT s, SUM(a) OVER (PARTITION BY b ORDER BY ts) FROM (SELECT a, b, ts, SUM(a) OVER (PARTITION BY a ORDER "
        "BY ts RANGE INTERVAL '1' HOUR PRECEDING) AS s FROM t)",
        "SELECT JSON_STRING(c), COUNT(DISTINCT JSON_STRING(c)) FROM t GROUP BY JSON_STRING(c)",
        "SELECT JSON_STRING(c) FROM t EXCEPT SELECT JSON_STRING(c) FROM t",
    ],
)
def test_what_a_message_advises_is_taken(query: str) -> None:
    Script().run(f"{TABLES}EXPLAIN {query}", "job.sql")


# What needs inputs that end, and the message without the way out.
ENDLESS = [
    ("SELECT a FROM t ORDER BY a LIMIT 3", "a",
     "ORDER BY needs an input that ends, and this one does not: it could never say which row is the first"),
    ("SELECT a FROM t LIMIT 3", "SELECT a FROM t LIMIT 3",
     "LIMIT needs an input that ends, and this one does not: the job would have to end it"),
    ("SELECT a FROM t WHERE a NOT IN (SELECT a FROM u)", "a NOT IN (SELECT a FROM u)",
     "NOT IN, or IN in a larger condition, needs inputs that end: while rows can come, it can become false"),
    ("SELECT a FROM t WHERE a IN (SELECT a FROM u) OR b = 'x'", "a IN (SELECT a FROM u)",
     "NOT IN, or IN in a larger condition, needs inputs that end: while rows can come, it can become false"),
    ("SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
     "EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
     "NOT EXISTS, or EXISTS in a larger condition, needs inputs that end: while rows can come, it can become false"),
    ("SELECT a + (SELECT MAX(x) FROM u) FROM t", "(SELECT MAX(x) FROM u)",
     "a sub-query as a value needs inputs that end: while rows can come, it can become another one"),
    ("SELECT a FROM t WHERE a IN (SELECT a FROM u)", "a IN (SELECT a FROM u)",
     "IN with a query keeps every row forever, for partners that may still arrive: say how long a row waits, with SET "
     "'table.exec.state.ttl' = '1 h' before it"),
    ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a FROM t UNION SELECT a FROM u",
     "UNION needs inputs that end, since it would keep all rows"),
    ("SELECT COUNT(*) FROM t GROUP BY b", "b",
     "INSERT INTO sink: GROUP BY without a window: its rows change, and sink has no PRIMARY KEY by which they do"),
    ("SELECT COUNT(*) FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS g GROUP BY n", "n",
     "INSERT INTO sink: GROUP BY groups the rows of GROUP BY without a window, which change"),
    ("SELECT DISTINCT a FROM t", "SELECT DISTINCT a FROM t",
     "INSERT INTO sink: DISTINCT: DISTINCT of rows without end would keep all of them"),
    ("SELECT t.a FROM t FULL JOIN u ON t.a = u.a", "t FULL JOIN u ON t.a = u.a", "FULL JOIN of rows that do not end"),
    ("SELECT t.a FROM t JOIN u ON t.a = u.a", "t JOIN u ON t.a = u.a", "this join keeps every row forever"),
    ("SELECT RANK() OVER (ORDER BY a) FROM t", "OVER (ORDER BY a)", "this OVER needs an input that ends"),
    ("SELECT SUM(a) OVER (ORDER BY ts) FROM t", "OVER (ORDER BY ts)",
     "OVER of rows without end waits for the watermark, and the DirectRunner's timers do not: take SparkRunner "
     "--streaming or FlinkRunner"),
    ("SELECT a FROM t EXCEPT ALL SELECT a FROM u", "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
     "EXCEPT ALL needs inputs that end, since it would keep all rows"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "marked", "message"), ENDLESS, ids=[each[0] for each in ENDLESS])
def test_what_needs_an_end(
    query: str, marked: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.sql"
    file.write_text(f"{TABLES}INSERT INTO sink {query};")
    of_runner = ["--runner=DirectRunner"] * ("DirectRunner" in message)
    assert main(["sql", str(file), "--check", *of_runner]) == 2
    shown = capsys.readouterr().err
    assert main(["sql", str(file), "--name_server=127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == shown
    if not of_runner:
        assert main(["sql", str(file), "--explain"]) == 0
        assert (
            f"if the inputs do not end, refused: {message.removeprefix('INSERT INTO sink: ')}"
            in capsys.readouterr().out
        )
    assert main(["sql", str(file), "--check", "--stop=latest", *of_runner]) == 0
    assert "valid" in capsys.readouterr().out
    first, line, carets = shown.splitlines()[:3]
    assert f"job.sql:{TABLES.count(chr(10)) + 1}:" in first
    assert message in first
    assert line[carets.index("^") :].startswith(marked), shown
    assert carets.count("^") == len(marked), shown


@pytest.mark.parametrize(
    "text",
    [
        "SET 'table.exec.state.ttl' = '1 h'; CREATE VIEW v AS SELECT * FROM t JOIN u ON u.a = t.a",
        "CREATE VIEW v (one, two) AS SELECT a, a FROM t",
        "CREATE VIEW v AS SELECT a FROM t; CREATE VIEW IF NOT EXISTS v AS SELECT a, a FROM t",
        "SET 'table.exec.state.ttl' = '1 h'; EXPLAIN WITH v AS (SELECT * FROM t JOIN u USING (a)) SELECT x FROM v",
    ],
)
def test_names_that_are_there_twice_and_that_nothing_uses(text: str) -> None:
    Script().run(f"{TABLES}{text}")
