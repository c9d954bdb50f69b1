"""Statements that are not valid: each is refused with its place and with what would be right."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from tests.unit.sql.endings import run_endless

TABLES = """
CREATE TABLE orders (
  id BIGINT NOT NULL, customer STRING, amount DECIMAL(10, 2), price DOUBLE, ts TIMESTAMP(3), day DATE, paid BOOLEAN,
  tags ARRAY<STRING>, extra MAP<STRING, INT>, address ROW<city STRING, zip INT>, body BYTES,
  topic STRING METADATA VIRTUAL, total AS amount * 2
) WITH ('topic' = 'orders');
CREATE TABLE customers (id BIGINT, name STRING) WITH ('topic' = 'customers');
CREATE TABLE sink (id BIGINT NOT NULL, name STRING, topic STRING METADATA VIRTUAL) WITH ('topic' = 'sink');
CREATE VIEW big AS SELECT id, customer FROM orders WHERE amount > 100;
SET 'table.exec.state.ttl' = '1 h';
"""

# A query, the text under the carets, and part of the message.
QUERIES = [
    ("SELECT idd FROM orders", "idd", "there is no column idd: did you mean 'id'?"),
    ("SELECT id FROM order_s", "order_s", "there is no table order_s: did you mean 'orders'?"),
    ("SELECT o.id FROM orders", "o", "there is no column o"),
    ("SELECT orders.idd FROM orders", "idd", "there is no column idd in orders: did you mean 'id'?"),
    ("SELECT id FROM orders o JOIN customers c ON o.id = c.id", "id", "id is ambiguous: it can be o.id and c.id"),
    ("SELECT o.* FROM orders", "o", "there is no table o"),
    ("SELECT address.town FROM orders", "town", "the row has no field town"),
    ("SELECT customer.x FROM orders", "x", "x is not a field: the expression before it is STRING, not a ROW"),
    ("SELECT UPPR(customer) FROM orders", "UPPR(customer)", "there is no function UPPR: did you mean 'UPPER'?"),
    ("SELECT UPPER(id) FROM orders", "UPPER(id)", "UPPER does not take (BIGINT); it is UPPER(STRING)"),
    ("SELECT UPPER() FROM orders", "UPPER()", "UPPER does not take (nothing)"),
    ("SELECT customer + 1 FROM orders", "customer", "+ takes numbers, not STRING: use CAST"),
    ("SELECT id || 'x' FROM orders", "id", "|| joins text, not BIGINT: use CAST"),
    ("SELECT -customer FROM orders", "customer", "- takes a number"),
    ("SELECT ts - ts FROM orders", "ts - ts", "use TIMESTAMPDIFF"),
    ("SELECT ts + 1 FROM orders", "ts + 1", "there is no TIMESTAMP(3) + INT"),
    ("SELECT id FROM orders WHERE customer = 1", "customer = 1", "STRING and INT cannot be compared: use CAST"),
    ("SELECT id FROM orders WHERE id", "id", "a condition must be BOOLEAN, not BIGINT"),
    ("SELECT id FROM orders WHERE tags > tags", "tags > tags", "ARRAY<STRING> has no order"),
    ("SELECT id FROM orders WHERE id IN (1, 'a')", "'a'", "BIGINT and STRING cannot be compared"),
    ("SELECT id FROM orders WHERE id BETWEEN 1 AND 'x'", "id BETWEEN 1 AND 'x'", "cannot be compared"),
    ("SELECT id FROM orders WHERE id LIKE '1%'", "id", "LIKE compares text, not BIGINT"),
    ("SELECT id FROM orders WHERE NOT id", "id", "a condition must be BOOLEAN"),
    ("SELECT id FROM orders WHERE paid AND customer", "customer", "a condition must be BOOLEAN, not STRING"),
    ("SELECT id FROM orders WHERE SUM(id) > 1", "SUM(id)", "is an aggregate function, which cannot be used in WHERE"),
    ("SELECT CASE WHEN paid THEN 1 ELSE 'x' END FROM orders", "'x'", "CASE has values of INT and STRING"),
    ("SELECT COALESCE(id, customer) FROM orders", "customer", "COALESCE has values of BIGINT and STRING"),
    ("SELECT CAST(ts AS BIGINT) FROM orders", "CAST(ts AS BIGINT)", "there is no CAST of TIMESTAMP(3) to BIGINT"),
    ("SELECT CAST(id AS NOSUCHTYPE) FROM orders", "NOSUCHTYPE", "NOSUCHTYPE is not a type"),
    ("SELECT CAST(id AS BIGINTT) FROM orders", "BIGINTT", "BIGINTT is not a type: did you mean 'BIGINT'?"),
    ("SELECT CAST('abc' AS INT) FROM orders", "CAST('abc' AS INT)", "always fails: 'abc' is not a whole number"),
    ("SELECT id + 1/0 FROM orders", "1/0", "this always fails: 1 / 0: division by zero"),
    ("SELECT 1/0 IN (id, 1) FROM orders", "1/0", "this always fails: 1 / 0: division by zero"),
    ("SELECT id NOT IN (1/0, 1) FROM orders", "1/0", "this always fails: "),
    ("SELECT (1/0, 1) IN ((id, 1), (2, 2)) FROM orders", "1/0", "this always fails: "),
    ("SELECT (id, 1) = (1/0, 1) FROM orders", "1/0", "this always fails: "),
    ("SELECT (id, 1) <> (1, 1/0) FROM orders", "1/0", "this always fails: "),
    ("SELECT id BETWEEN 1 + 1/0 AND 1 FROM orders", "1/0", "this always fails: "),
    ("SELECT CASE 1/0 WHEN id THEN 1 END FROM orders", "1/0", "this always fails: "),
    ("SELECT CASE WHEN id = 1/0 THEN 1 END FROM orders", "1/0", "this always fails: "),
    ("SELECT NULLIF(id, 1/0) FROM orders", "1/0", "this always fails: "),
    ("SELECT COALESCE(CAST('abc' AS INT), 1) FROM orders", "CAST('abc' AS INT)", "this CAST always fails: "),
    ("SELECT id FROM orders WHERE id > MOD(5, 1 - 1)", "MOD(5, 1 - 1)", "always fails: 5 % (1 - 1): division by zero"),
    ("SELECT 9223372036854775807 + 1 FROM orders", "9223372036854775807 + 1", "this always fails: "),
    ("SELECT ABS(2147483647 + 1) FROM orders", "2147483647 + 1", "this always fails: "),
    ("SELECT CAST(5 AS DECIMAL(2,2)) FROM orders", "CAST(5 AS DECIMAL(2,2))",
     "this CAST always fails: 5 has too many digits for DECIMAL(2, 2)"),
    ("SELECT CAST(id AS DECIMAL(50, 2)) FROM orders", "DECIMAL(50, 2)", "DECIMAL has 1 to 38 digits, not 50"),
    ("SELECT CAST(id AS DECIMAL(4, 6)) FROM orders", "DECIMAL(4, 6)", "more digits after the point than digits"),
    ("SELECT DATE '2024-02-30' FROM orders", "DATE '2024-02-30'", "'2024-02-30' is not a date"),
    ("SELECT TIMESTAMP '2024-02-30 10:00:00' FROM orders", "TIMESTAMP '2024-02-30 10:00:00'", "is not a date"),
    ("SELECT TIMESTAMP '2024-01-01 24:00:00' FROM orders", "TIMESTAMP '2024-01-01 24:00:00'", "is not a time of day"),
    ("SELECT TIMESTAMP '2024-01-01 25:00:00' FROM orders", "TIMESTAMP '2024-01-01 25:00:00'", "is not a time of day"),
    ("SELECT id FROM orders WHERE ts > 'yesterday'", "ts > 'yesterday'", "'yesterday' is not a timestamp"),
    ("SELECT INTERVAL 'x' DAY FROM orders", "INTERVAL 'x' DAY", "'x' is not a whole number of days"),
    ("SELECT INTERVAL '106751992' DAY FROM orders", "INTERVAL '106751992' DAY", "is too long for an interval"),
    ("SELECT INTERVAL '178956971' YEAR FROM orders", "INTERVAL '178956971' YEAR", "is too long for an interval"),
    ("SELECT INTERVAL '1:99' MINUTE TO HOUR FROM orders", "INTERVAL '1:99' MINUTE TO HOUR", "is not an interval"),
    ("SELECT tags['x'] FROM orders", "'x'", "the position in an array is an integer"),
    ("SELECT id[1] FROM orders", "id", "[...] takes an element of an ARRAY or a MAP"),
    ("SELECT ARRAY[1, 'x'] FROM orders", "'x'", "ARRAY has values of INT and STRING"),
    ("SELECT EXTRACT(YEAR FROM id) FROM orders", "EXTRACT(YEAR FROM id)", "YEAR takes a DATE or a TIMESTAMP"),
    ("SELECT UPPER(DISTINCT customer) FROM orders", "UPPER(DISTINCT customer)", "belong to aggregate functions"),
    ("SELECT (SELECT id, name FROM customers) FROM orders", None, "a sub-query as a value must have one column"),
    ("SELECT 12345678901234567890123456789012345678901 FROM orders", "12345678901234567890123456789012345678901", "38"),
    ("SELECT * ", "*", "* needs FROM"),
    ("SELECT o.id FROM orders o JOIN customers o ON o.id = o.id", "customers o", "name o"),
    ("SELECT o.id FROM orders o FULL JOIN customers c ON o.id > c.id", "o.id > c.id", "a FULL JOIN needs an equality"),
    ("SELECT o.id FROM orders o LEFT JOIN customers c ON o.id > c.id", "o.id > c.id", "a LEFT JOIN needs an equality"),
    ("SELECT id FROM orders ORDER BY idd", "idd", "there is no column idd: did you mean 'id'?"),
    ("SELECT id FROM orders UNION SELECT id, name FROM customers", "SELECT id, name FROM customers", "1 and 2"),
    ("SELECT id FROM orders UNION ALL SELECT id, name FROM customers", "SELECT id, name FROM customers", "1 and 2"),
    ("SELECT id FROM orders UNION ALL SELECT name FROM customers", "SELECT name FROM customers", "use CAST"),
    ("SELECT id FROM orders WHERE SUM(id) OVER () > 1", "OVER ()", "OVER cannot be used in WHERE: use it in SELECT"),
    ("SELECT tags, COUNT(*) FROM orders GROUP BY tags", "tags", "a key of GROUP BY cannot be ARRAY<STRING>"),
    ("SELECT COUNT(DISTINCT tags) FROM orders", "COUNT(DISTINCT tags)", "cannot be ARRAY<STRING>"),
    ("SELECT DISTINCT tags FROM orders", None, "tags cannot be ARRAY<STRING>"),
    ("SELECT CAST(ROW(1, 2) AS ROW<a INT>) FROM orders", "CAST(ROW(1, 2) AS ROW<a INT>)", "there is no CAST of ROW"),
    ("SELECT id, SUM(price) FROM orders", "id", "id is neither in GROUP BY nor in an aggregate function"),
    ("SELECT SUM(price), * FROM orders", "*", "id is neither in GROUP BY nor in an aggregate"),
    ("SELECT SUM(MAX(price)) FROM orders", "MAX(price)", "which cannot be used in another one"),
    ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(day, INTERVAL '1' DAY)", "day", "a TIMESTAMP, but day is DATE"),
    ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' DAY)", "ts", "no watermark follows ts"),
    ("WITH x AS (SELECT 1), x AS (SELECT 2) SELECT * FROM x", "x", "WITH has two queries with the name x"),
    ("WITH x AS (SELECT nothing FROM orders) SELECT id FROM orders", "nothing", "there is no column nothing"),
    ("WITH x (a, b) AS (SELECT id FROM orders) SELECT a FROM x", "x", "2 names for 1 column"),
]  # fmt: skip


def refused(statement: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        run_endless(f"{TABLES}{statement}", "job.sql")
    return caught.value


@pytest.mark.parametrize(
    "expression",
    [
        "CASE WHEN id = 0 THEN 1/0 ELSE 2 END", "COALESCE(id, 1/0)", "IF(id > 0, 1, 1/0)",
        "TRY_CAST(CAST(1/0 AS STRING) AS INT)",
        "id > 0 OR 1/0 = 1", "1 / RAND_INTEGER(1)", "1/0e0", "id / 0",
    ],
)  # fmt: skip
def test_constants_that_not_every_row_computes_are_accepted(expression: str) -> None:
    run_endless(f"{TABLES} EXPLAIN SELECT {expression} FROM orders;")


@pytest.mark.parametrize(("query", "marked", "message"), QUERIES, ids=[each[0] for each in QUERIES])
def test_queries(query: str, marked: str | None, message: str) -> None:
    error = refused(f"EXPLAIN {query}")
    assert message in error.message
    assert error.line == TABLES.count("\n") + 1
    if marked is not None:
        shown, carets = error.shown.splitlines()
        assert shown[carets.index("^") :].startswith(marked), error
        assert carets.count("^") == len(marked), error


STATEMENTS = [
    ("INSERT INTO sink SELECT 1", "sink takes 2 values (id, name), but the query has 1"),
    ("INSERT INTO sink SELECT 'a', 'b'", "id is BIGINT, but the query gives STRING: use CAST"),
    ("INSERT INTO sink (id, nam) SELECT 1, 'b'", "sink has no column nam: did you mean 'name'?"),
    ("INSERT INTO sink (id, id) SELECT 1, 2", "the column id is listed twice"),
    ("INSERT INTO sink (id, topic) SELECT 1, 'x'", "the column topic is VIRTUAL: it gets no value"),
    ("INSERT INTO sink (name) SELECT 'x'", "the column id is NOT NULL and gets no value"),
    ("INSERT INTO big SELECT 1, 'x'", "big is a view: INSERT INTO needs a table"),
    ("INSERT INTO sinc SELECT 1, 'x'", "there is no table sinc: did you mean 'sink'?"),
    ("INSERT OVERWRITE sink SELECT 1, 'x'", "a topic cannot be overwritten"),
    ("SELECT id FROM orders", "a query of a script needs a table for its rows"),
    ("CREATE TABLE sink (a INT) WITH ('topic' = 'x')", "there is a table sink already"),
    ("CREATE TABLE big (a INT) WITH ('topic' = 'x')", "there is a view big already"),
    ("CREATE TABLE t (a INT, a INT) WITH ('topic' = 'x')", "the column a is listed twice"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (b)) WITH ('topic' = 'x')", "there is no column b"),
    ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a)) WITH ('topic' = 'x')", "can have only one PRIMARY KEY"),
    ("CREATE TABLE t (a INT, WATERMARK FOR b AS b) WITH ('topic' = 'x')", "there is no column b"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'topik' = 'y')", "'topik' is unknown: did you mean 'topic'?"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'topic' = 'y')", "the option 'topic' is given twice"),
    ("CREATE TABLE t (a INT) WITH (topic = 'x', consumerGroup = 'a', groupName = 'b')", "the same as 'consumerGroup'"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'topic' = 'x')", "connector is 'kafka'"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'format' = 'jsn')", "format is 'jsn': did you mean 'json'?"),
    ("CREATE TABLE t (a INT)", "the table t needs the option 'topic'"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'on-error' = 'dead-letter')", "needs the option 'dead-letter-topic'"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'timeZone' = 'Asia/Shanghia')", "did you mean 'Asia/Shanghai'?"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'startTime' = 'now')", "it must be like 2024-01-31 23:59:59"),
    ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'scan.startup.mode' = 'lastest')", "did you mean 'latest'?"),
    ("CREATE TABLE t (a STRING METADATA FROM 'offst') WITH ('topic' = 'x')", "did you mean 'offset'?"),
    ("CREATE TABLE t (a BIGINT METADATA FROM 'offset') WITH ('topic' = 'x')", "read-only: declare the column VIRTUAL"),
    ("CREATE VIEW v AS SELECT nothing FROM orders", "there is no column nothing"),
    ("CREATE VIEW v AS SELECT * FROM v", "contains itself"),
    ("INSERT INTO sink SELECT NULL, 'x'", "id is NOT NULL, but the query gives NULL"),
    ("CREATE TABLE t (o STRING METADATA FROM 'offset' VIRTUAL) WITH ('topic' = 'x')", "'offset' is BIGINT, not STRING"),
    ("CREATE VIEW v (q, w) AS SELECT id FROM orders", "2 names for 1 column"),
    ("CREATE TABLE IF NOT EXISTS big (a INT) WITH ('topic' = 'x'); SELECT nothing", "a query of a script"),
    ("CREATE TABLE p (a INT) WITH ('connector' = 'print'); EXPLAIN SELECT a FROM p", "the table p cannot be read"),
    ("CREATE TABLE t (a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '-5' SECOND) WITH ('topic' = 'x')",
     "must not be negative"),
    ("DROP TABLE sinc", "there is no table sinc: did you mean 'sink'?"),
    ("SET 'table.exec.state.tll' = '1 h'", "there is no setting 'table.exec.state.tll': did you mean"),
    ("SET 'table.exec.state.ttl' = 'long'", "'long' is not a time; it must be like '1 h'"),
    ("RESET; INSERT INTO sink SELECT o.id, c.name FROM orders o JOIN customers c ON o.id = c.id",
     "this join keeps every row forever"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), STATEMENTS, ids=[each[0] for each in STATEMENTS])
def test_statements(statement: str, message: str) -> None:
    error = refused(statement)
    assert message in error.message
    assert error.line == TABLES.count("\n") + 1, "the place is known"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT INTERVAL '{}' DAY", "an interval has at most 100 characters"),
        ("SELECT INTERVAL '0.{}' SECOND", "an interval has at most 100 characters"),
        ("SELECT INTERVAL '{}' YEAR", "an interval has at most 100 characters"),
        ("SELECT INTERVAL '1-{}' YEAR TO MONTH", "an interval has at most 100 characters"),
        ("SELECT INTERVAL '1 {}' DAY TO HOUR", "an interval has at most 100 characters"),
        ("SELECT id FROM orders LIMIT {}", "this number has more than 18 digits"),
        ("SELECT id FROM orders LIMIT 5 OFFSET {}", "this number has more than 18 digits"),
        ("SELECT id FROM orders FETCH FIRST {} ROWS ONLY", "this number has more than 18 digits"),
        ("SELECT id, id FROM orders ORDER BY {}", "the positions 1 to 2, not 111111111111111111..."),
        ("SELECT REGEXP(customer, 'a{{{}}}') FROM orders", "a number in it has too many digits"),
        ("SELECT customer SIMILAR TO 'a{{{}}}' FROM orders", "a number in it has too many digits"),
        ("SELECT PRINTF('%{}d', id) FROM orders", "is longer than 1000000 characters"),
        ("SELECT PRINTF('%.{}f', amount) FROM orders", "is longer than 1000000 characters"),
        ("SELECT PRINTF('%{}$d', id) FROM orders", "takes argument 1000000000, and there is 1 argument"),
        ("CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS withOffset(ts, {})) WITH ('topic' = 'x')",
         "an interval has at most 100 characters"),
        ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'scan.startup.specific-offsets' = 'broker:a,queue:{},offset:1')",
         "must be like 'broker:broker-a,queue:0,offset:42'"),
        ("CREATE TABLE t (a INT) WITH ('topic' = 'x', 'scan.startup.specific-offsets' = 'broker:a,queue:1,offset:{}')",
         "must be like 'broker:broker-a,queue:0,offset:42'"),
    ],
)  # fmt: skip
def test_more_digits_than_python_converts(statement: str, message: str) -> None:
    text = statement.format("1" * 5000)
    assert message in refused(text if text.startswith("CREATE") else f"INSERT INTO sink {text}").message


WINDOW = "FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT a, COUNT(*) {WINDOW} GROUP BY a", "GROUP BY over a window must name window_start and window_end"),
        (f"SELECT a, COUNT(*) {WINDOW} GROUP BY a, window_start", "needs both window_start and window_end"),
        (
            f"SELECT COUNT(*) {WINDOW} GROUP BY window_start, window_end, EXTRACT(DAY FROM window_end)",
            "columns of the window",
        ),
        (
            "SELECT MAX(window_end) FROM TABLE(SESSION(TABLE w, DESCRIPTOR(ts), INTERVAL '1' DAY)) "
            "GROUP BY window_start, window_end",
            "the columns of a window of SESSION are known behind the aggregate only: take them in WHERE",
        ),
        (
            f"SELECT COUNT(*) FILTER (WHERE window_end > ts) {WINDOW} GROUP BY window_start, window_end EMIT CHANGES",
            "with EMIT and table.exec.emit, columns of the window cannot be in WHERE or in aggregates: take them in",
        ),
        ("SELECT a FROM TABLE(SESSION(TABLE w, DESCRIPTOR(ts), INTERVAL '1' DAY))", "rows of SESSION need GROUP BY"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE w, ts, INTERVAL '1' DAY))", "is written as DESCRIPTOR(column)"),
        (
            "SELECT COUNT(*) FROM TABLE(HOP(TABLE w, DESCRIPTOR(ts), INTERVAL '2' DAY, INTERVAL '3' DAY))",
            "a multiple of",
        ),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts)))", "SIZE is missing"),
        (
            "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '0.0009' SECOND))",
            "must be longer than zero, in whole milliseconds",
        ),
        (
            "SELECT COUNT(*) FROM TABLE(HOP(TABLE w, DESCRIPTOR(ts), INTERVAL '0.0009' SECOND, INTERVAL '1' SECOND))",
            "must be longer than zero, in whole milliseconds",
        ),
        (
            "SELECT COUNT(*) FROM w GROUP BY SESSION(ts, INTERVAL '0.0009' SECOND)",
            "must be longer than zero, in whole milliseconds",
        ),
        (
            "SELECT COUNT(*) FROM TABLE(HOP(TABLE w, DESCRIPTOR(ts), INTERVAL '2.0005' SECOND, INTERVAL '5' SECOND))",
            "must be a multiple of the slide",
        ),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE w, SIZ => INTERVAL '1' DAY))", "did you mean 'SIZE'?"),
        (
            f"SELECT TUMBLE_START(ts, INTERVAL '1' DAY) {WINDOW} GROUP BY window_start, window_end",
            "needs the same TUMBLE",
        ),
    ],
)
def test_windows(query: str, message: str) -> None:
    table = "CREATE TABLE w (a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 'w');"
    assert message in refused(f"{table} EXPLAIN {query}").message


@pytest.mark.parametrize("count", [100, 3000])
def test_long_chains_and_deep_nests_are_parsed(count: int) -> None:
    script = Script()
    chain = " OR ".join(f"id = {n}" for n in range(count))
    script.run(f"{TABLES} EXPLAIN SELECT id FROM orders WHERE {chain};")
    script.run(f"EXPLAIN SELECT {' + '.join(['id'] * min(count, 1000))} FROM orders;")
    assert len(script.explained) == 2


def test_the_greatest_of_many() -> None:
    script = Script()
    script.run(f"{TABLES} EXPLAIN SELECT GREATEST({', '.join(['id'] * 50)}), LEAST(id) FROM orders;")
    assert script.explained
