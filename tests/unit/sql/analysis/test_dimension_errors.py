"""Statements about dimension tables, files and databases that are not valid: each with its place and whole message."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script

TABLES = """
CREATE TABLE o (id INT, customer INT, ts TIMESTAMP(3), proctime AS PROCTIME(), tags ARRAY<INT>,
  WATERMARK FOR ts AS ts) WITH ('topic' = 'o');
CREATE TABLE c (id INT, name STRING, tags ARRAY<INT>) WITH ('connector' = 'filesystem', 'path' = '/c.csv');
CREATE TABLE d (id INT) WITH ('connector' = 'filesystem', 'path' = '/d', 'dead-letter-topic' = 'x');
CREATE TABLE stream (id INT, name STRING) WITH ('topic' = 's');
CREATE TABLE computed (id INT, k AS id + 1, PRIMARY KEY (k) NOT ENFORCED) WITH ('topic' = 's');
CREATE TABLE again (id INT PRIMARY KEY) WITH ('topic' = 's', 'refresh' = '1 min');
CREATE TABLE shown (id INT) WITH ('connector' = 'print');
CREATE TABLE db (id INT, name STRING) WITH ('connector' = 'jdbc', 'url' = 'sqlite:///x', 'table-name' = 't');
CREATE TABLE parquet (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = '/p', 'format' = 'parquet');
CREATE VIEW counts AS SELECT id, COUNT(*) AS n FROM c GROUP BY id;
"""
NOW = "FOR SYSTEM_TIME AS OF PROCTIME()"
ONLY = (
    "a dimension table is joined as it is when the row comes: FOR SYSTEM_TIME AS OF takes processing time only, "
    "PROCTIME() or a column that is AS PROCTIME()"
)

# A query, the text under the carets, and the message.
QUERIES = [
    ("SELECT o.id FROM o JOIN c FOR SYSTEM_TIME AS OF o.ts ON o.id = c.id", "o.ts", ONLY),
    ("SELECT o.id FROM o JOIN c FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP ON o.id = c.id", "CURRENT_TIMESTAMP", ONLY),
    ("SELECT o.id FROM o JOIN c FOR SYSTEM_TIME AS OF o.proctim ON o.id = c.id", "proctim",
     "there is no column proctim in o: did you mean 'proctime'?"),
    (f"SELECT o.id FROM o JOIN stream {NOW} ON o.id = stream.id", "stream",
     "stream is a stream, whose rows are not versions of each other: with a PRIMARY KEY, the newest row of each key is "
     "the table"),
    (f"SELECT o.id FROM o RIGHT JOIN c {NOW} ON o.id = c.id", f"o RIGHT JOIN c {NOW} ON o.id = c.id",
     "a RIGHT JOIN would give rows of the dimension that nothing has looked up: use JOIN or LEFT JOIN"),
    (f"SELECT o.id FROM o FULL OUTER JOIN c {NOW} ON o.id = c.id", f"o FULL OUTER JOIN c {NOW} ON o.id = c.id",
     "a FULL JOIN would give rows of the dimension that nothing has looked up: use JOIN or LEFT JOIN"),
    (f"SELECT o.id FROM o CROSS JOIN c {NOW}", f"c {NOW}",
     "a dimension table needs a condition with its key: JOIN ... ON"),
    (f"SELECT o.id FROM o JOIN c {NOW} ON c.id > o.id", "c.id > o.id",
     "the condition needs an equality with a column of c, by which its rows are found"),
    (f"SELECT o.id FROM o JOIN c {NOW} ON c.tags = o.tags", "c.tags = o.tags",
     "the condition needs an equality with a column of c, by which its rows are found"),
    (f"SELECT o.id FROM o JOIN c {NOW} ON c.id = 1", "c.id = 1",
     "the condition needs an equality with a column of c, by which its rows are found"),
    (f"SELECT c.id FROM c {NOW}", f"c {NOW}",
     "a table FOR SYSTEM_TIME AS OF must be on the right of a JOIN or LEFT JOIN"),
    (f"SELECT o.id FROM c {NOW} JOIN o ON o.id = c.id", f"c {NOW}",
     "a table FOR SYSTEM_TIME AS OF must be on the right of a JOIN or LEFT JOIN"),
    (f"SELECT o.id FROM o JOIN c {NOW} AS o ON o.id = c.id", f"c {NOW} AS o",
     "two tables of FROM have the name o: give one of them an alias"),
    (f"SELECT o.id FROM o JOIN counts {NOW} ON o.id = counts.id", "counts",
     "counts is not a table: a dimension is a table, or a view with columns and rows of one"),
    (f"SELECT o.id FROM o JOIN d {NOW} ON o.id = d.id", "d",
     "d sends bad rows to dead letters, which is not possible while it is loaded as a dimension: 'on-error' is fail or "
     "skip there"),
    (f"SELECT o.id FROM o JOIN computed {NOW} ON o.id = computed.id", "computed",
     "k, the PRIMARY KEY of computed, is computed: a message must have it"),
    (f"SELECT o.id FROM o JOIN again {NOW} ON o.id = again.id", "again",
     "again is a topic, which is kept up to date by itself: leave 'refresh' out"),
    (f"SELECT o.id FROM o JOIN c {NOW} ON o.id = c.name", "o.id = c.name",
     "INT and STRING cannot be compared: use CAST"),
    (f"SELECT o.id FROM o JOIN cc {NOW} ON o.id = cc.id", "cc", "there is no table cc: did you mean 'c'?"),
    (f"SELECT w.id FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS w JOIN c {NOW} ON w.id = c.id",
     None,
     "rows of a window cannot be joined: join before the window, in a query of its own"),
]  # fmt: skip


def refused(statement: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        Script().run(f"{TABLES}{statement}", "job.sql")
    return caught.value


@pytest.mark.parametrize(("query", "marked", "message"), QUERIES, ids=[each[0] for each in QUERIES])
def test_queries(query: str, marked: str | None, message: str) -> None:
    error = refused(f"EXPLAIN {query}")
    assert error.message == message
    assert error.line == TABLES.count("\n") + 1
    if marked is not None:
        shown, carets = error.shown.splitlines()
        assert shown[carets.index("^") :].startswith(marked), error
        assert carets.count("^") == len(marked), error


def table(options: str, columns: str = "a INT") -> str:
    return f"CREATE TABLE x ({columns}) WITH ({options})"


FILE = "'connector' = 'filesystem', 'path' = '/x'"
BASE = "'connector' = 'jdbc', 'url' = 'sqlite:///x', 'table-name' = 't'"
STATEMENTS = [
    (table("'connector' = 'filesystm', 'path' = '/x'"), "connector is 'filesystm': did you mean 'filesystem'?"),
    (table("'connector' = 'filesystem'"), "the table x needs the option 'path'"),
    (table("'connector' = 'jdbc', 'table-name' = 't'"), "the table x needs the option 'url'"),
    (table("'connector' = 'jdbc', 'url' = 'sqlite://'"), "the table x needs the option 'table-name'"),
    (table(f"{FILE}, 'pth' = '/y'"), "the option 'pth' is unknown: did you mean 'path'?"),
    (table(f"{BASE}, 'usrname' = 'y'"), "the option 'usrname' is unknown: did you mean 'username'?"),
    (table(f"{BASE}, 'lookup.cache.tl' = '1 s'"),
     "the option 'lookup.cache.tl' is unknown: did you mean 'lookup.cache.ttl'?"),
    (table(f"{FILE}, 'topic' = 'x'"), "the option 'topic' is of topics, not of the connector filesystem"),
    (table(f"{BASE}, 'format' = 'json'"), "the option 'format' is of topics and files, not of the connector jdbc"),
    (table(f"{FILE}, 'url' = 'x'"), "the option 'url' is of the connector jdbc, not of filesystem"),
    (table("'topic' = 'x', 'path' = '/x'"), "the option 'path' is of the connector filesystem, not of rocketmq"),
    (table(f"{FILE}, 'format' = 'avro'"),
     "format is 'avro'; it can be json, csv, key-value, raw, parquet, grok, syslog, cef"),
    (table(f"{FILE}, 'format' = 'parqet'"), "format is 'parqet': did you mean 'parquet'?"),
    (table("'topic' = 'x', 'format' = 'parquet'"),
     "format is 'parquet'; it can be json, csv, raw, key-value, avro, avro-confluent, avro-openschema, json-confluent, "
     "protobuf, protobuf-confluent, grok, syslog, "
     "cef"),
    (table(f"{FILE}, 'refresh' = 'often'"), "'often' is not a time; it must be like '1 h'"),
    (table(f"{FILE}, 'refresh' = '0 s'"), "refresh is '0 s': loading would never end; leave it out to load once"),
    (table(f"{FILE}, 'refresh' = '1 s', 'cacheTTLMs' = '5'"),
     "'cacheTTLMs' and 'refresh' both say when it is loaded again"),
    (table(f"{BASE}, 'lookup.cache' = 'NONE'"),
     "lookup.cache is 'NONE', but a dimension is always kept in memory as a whole: say how often it is loaded again, "
     "with 'refresh' = '1 min'"),
    (table(f"{BASE}, 'lookup.cache' = 'FULLL'"), "lookup.cache is 'FULLL': did you mean 'FULL'?"),
    (table("'connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d?useSSL=false', 'table-name' = 't'"),
     "the parameters of url are those of a driver in Java: leave out '?useSSL=false'"),
    (table("'connector' = 'jdbc', 'url' = 'localhost', 'table-name' = 't'"),
     "url is 'localhost'; it must be like 'postgresql://host:5432/database' or 'sqlite:///file.db'"),
    (table("'connector' = 'jdbc', 'url' = 'jdbc:sqlite:x.db', 'table-name' = 't'"),
     "url is 'jdbc:sqlite:x.db'; it must be like 'postgresql://host:5432/database' or 'sqlite:///file.db'"),
    *(
        (table(f"'connector' = 'jdbc', 'url' = '{url}', 'table-name' = 't'"),
         "url holds a password, which would travel with the pipeline: give 'username', and 'password_env', an "
         "environment variable of each process that connects, or 'password_file'")
        for url in ("postgresql://me:hunter2@h/d", "jdbc:mysql://me:hunter2@h/d", "mysql://h/d?password=hunter2",
                    "mysql://h/d?Pasword=hunter2")
    ),
    (table("'connector' = 'jdbc', 'url' = 'postgresql://me:hunter2/d', 'table-name' = 't'"),
     "url: what is behind the host is not the number of a port: is it a password, and the host left out?"),
    (table("'connector' = 'jdbc', 'url' = 'me:hunter2@h:5432/d', 'table-name' = 't'"),
     "url is '***'; it must be like 'postgresql://host:5432/database' or 'sqlite:///file.db'"),
    (table(f"{FILE}, 'sink.parallelism' = '0'"), "sink.parallelism is '0'; it must be a whole number from 1 to 9999"),
    (table(f"{FILE}, 'format' = 'csv', 'csv.ignore-first-line' = 'maybe'"),
     "csv.ignore-first-line is 'maybe'; it can be true or false"),
    (table(f"{FILE}, 'csv.ignore-first-line' = 'true'"),
     "the option 'csv.ignore-first-line' is of the format csv, not of json: leave it out, or write 'format' = 'csv'"),
    (table(f"{FILE}, 'csv.field-delimiter' = ';'"),
     "the option 'csv.field-delimiter' is of the format csv, not of json: leave it out, or write 'format' = 'csv'"),
    (table(FILE, "a INT, `offset` BIGINT METADATA VIRTUAL"),
     "the metadata 'offset' is of messages: a table of the connector filesystem has none"),
    (table(BASE, "a INT, tags STRING METADATA"),
     "the metadata 'tags' is of messages: a table of the connector jdbc has none"),
    (table(f"{FILE}, 'format' = 'csv'", "a ARRAY<INT>"),
     "the column a is ARRAY<INT>, which the format csv does not have: use json or avro, or make it STRING"),
    ("INSERT INTO db SELECT 1, 'x'", "db is a table of a database, which can only be read"),
    ("INSERT INTO parquet SELECT 1, 'x'",
     "parquet cannot be written: files of the format parquet can only be read; use json or csv"),
    ("INSERT OVERWRITE c SELECT 1, 'x', ARRAY[1]", "INSERT OVERWRITE is not supported: INSERT INTO adds files"),
    ("EXPLAIN SELECT id FROM shown", "the table shown cannot be read: its connector is 'print'"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), STATEMENTS, ids=[each[1] for each in STATEMENTS])
def test_statements(statement: str, message: str) -> None:
    error = refused(statement)
    assert error.message == message
    assert error.line == TABLES.count("\n") + 1, "the place is known"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT o.id, d.name FROM o LEFT JOIN c {NOW} AS d ON d.id = o.customer",
        f"SELECT o.id, name FROM o LEFT JOIN c {NOW} d USING (id)",
        f"SELECT * FROM o, c {NOW} WHERE o.id = c.id",
        "SELECT v.id FROM (SELECT id, proctime AS p FROM o) AS v JOIN c FOR SYSTEM_TIME AS OF v.p ON v.id = c.id",
        f"SELECT o.id FROM o JOIN db {NOW} ON db.id = o.id JOIN c FOR SYSTEM_TIME AS OF o.proctime ON c.name = db.name",
        f"WITH w AS (SELECT id AS k FROM c WHERE name <> 'x') SELECT o.id FROM o JOIN w {NOW} ON w.k = o.id",
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE joined, DESCRIPTOR(ts), INTERVAL '1' DAY)) "
        "GROUP BY window_start, window_end",
    ],
)
def test_valid_queries(query: str) -> None:
    script = Script()
    view = f"CREATE VIEW joined AS SELECT o.ts, c.name FROM o JOIN c {NOW} ON o.id = c.id;"
    script.run(f"{TABLES} {view} EXPLAIN {query}")
    assert script.explained
