"""Tables that end, files and databases, as sources and sinks of a job on the Direct runner."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import resource
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.errors import RmqioError
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.runtime.writes import WriteFileFn
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.own_process import in_own_process
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import in_order, put, rows, run, stored

SINK = "CREATE TABLE sink (a INT, b STRING) WITH ('topic' = 'sink');"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink", "letters"):
            made.create_topic(topic, 2)
        yield made


def files(path: Path, kind: str = "csv", columns: str = "a INT, b STRING", name: str = "f", more: str = "") -> str:
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = '{kind}'{more}"
    return f"CREATE TABLE {name} ({columns}) WITH ({options});"


def test_files_of_a_folder_are_read(cluster: InMemoryCluster, tmp_path: Path) -> None:
    """Hidden files are left out; comments, blank lines, a byte order mark and line breaks in quotes are understood."""
    (tmp_path / "1.csv").write_bytes(b'\xef\xbb\xbfa,b\r\n1,"x\ny"\r\n\r\n#2,no\n3,"say ""hi"""\n')
    with gzip.open(tmp_path / "2.csv.gz", "wt") as file:
        file.write("a,b\n4,z")
    (tmp_path / "_SUCCESS").write_text("no row")
    (tmp_path / ".hidden").write_text("no row")
    more = ", 'csv.ignore-first-line' = 'true', 'csv.allow-comments' = 'true'"
    run(cluster, f"{files(tmp_path, more=more)} {SINK} INSERT INTO sink SELECT a, b FROM f WHERE a <> 9;")
    assert rows(cluster) == [(1, "x\ny"), (3, 'say "hi"'), (4, "z")]
    ids = {record.message_id for record in stored(cluster, "sink")}
    run(cluster, f"{files(tmp_path, more=more)} {SINK} INSERT INTO sink SELECT a, b FROM f WHERE a <> 9;")
    assert {record.message_id for record in stored(cluster, "sink")} == ids


def test_every_form_of_from_takes_files(cluster: InMemoryCluster, tmp_path: Path) -> None:
    put(cluster, "t", {"a": 1, "b": "topic"}, {"a": 2, "b": "topic"})
    (tmp_path / "f.json").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n{"a": 2, "b": "y"}\n')
    topic = "CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't');"
    run(
        cluster,
        f"{topic} {files(tmp_path / '*.json', 'json')} {SINK}"
        "CREATE VIEW v AS SELECT a AS n, b FROM f WHERE a = 2;"
        "INSERT INTO sink SELECT n, b FROM v UNION ALL SELECT a, b FROM t;"
        "INSERT INTO sink SELECT t.a + 10, f.b FROM t JOIN f ON t.a = f.a;"
        "INSERT INTO sink SELECT a + 20, CAST(COUNT(*) AS STRING) FROM f GROUP BY a;"
        "INSERT INTO sink SELECT DISTINCT a + 30, b FROM f;"
        "INSERT INTO sink SELECT one.a + 40, other.b FROM f AS one JOIN f AS other ON one.a = other.a + 1;",
    )
    assert rows(cluster) == in_order(
        [(2, "y"), (2, "y"), (1, "topic"), (2, "topic"), (11, "x"), (12, "y"), (12, "y"), (21, "1"), (22, "2"),
         (31, "x"), (32, "y"), (42, "x"), (42, "x")]
    )  # fmt: skip


def test_lines_of_logs(cluster: InMemoryCluster, tmp_path: Path) -> None:
    pytest.importorskip("regex", reason="grok needs the extra 'sql'")
    (tmp_path / "f.log").write_text("7 one\n\n8 two\n")
    more = ", 'grok.pattern' = '%{INT:a} %{WORD:b}'"
    run(cluster, f"{files(tmp_path / 'f.log', 'grok', more=more)} {SINK} INSERT INTO sink SELECT a, b FROM f;")
    assert rows(cluster) == [(7, "one"), (8, "two")]


def test_rows_of_a_changed_file_have_other_ids(cluster: InMemoryCluster, tmp_path: Path) -> None:
    """A write that drops copies must not take the rows of today's file for those of yesterday's."""
    path = tmp_path / "f.csv"
    for text in ("1,x\n", "1,other\n"):
        path.write_text(text)
        run(cluster, f"{files(path)} {SINK} INSERT INTO sink SELECT a, b FROM f;")
    assert len({record.message_id for record in stored(cluster, "sink")}) == 2


def test_windows_of_files(cluster: InMemoryCluster, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("1,2024-01-01 00:00:59\n2,2024-01-01 00:01:00\n3,2024-01-01 00:00:01\n")
    table = files(tmp_path / "f.csv", columns="a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND")
    run(
        cluster,
        f"{table} {SINK} INSERT INTO sink SELECT CAST(SUM(a) AS INT), CAST(window_start AS STRING) FROM "
        "TABLE(TUMBLE(TABLE f, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
    )
    assert rows(cluster) == [(2, "2024-01-01 00:01:00.000"), (4, "2024-01-01 00:00:00.000")]
    (tmp_path / "n.csv").write_text("1,10\n3,30\n3,31\n")
    run(
        cluster,
        f"{table} {files(tmp_path / 'n.csv', columns='a INT, n INT', name='d')} {SINK}"
        "CREATE VIEW v AS SELECT f.ts, d.n FROM f LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON f.a = d.a;"
        "INSERT INTO sink SELECT SUM(n), CAST(window_start AS STRING) FROM "
        "TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;",
    )
    assert (71, "2024-01-01 00:00:00.000") in rows(cluster)
    assert (None, "2024-01-01 00:01:00.000") in rows(cluster)


ALL = (
    "i INT, l BIGINT, d DOUBLE, n DECIMAL(10, 2), s STRING, b BOOLEAN, x BYTES, day DATE, t TIME(3), ts TIMESTAMP(6), "
    "z TIMESTAMP_LTZ(3)"
)
VALUES = {
    "i": 1, "l": 1 << 40, "d": 0.5, "n": Decimal("1.50"), "s": "text", "b": True, "x": b"\xff",
    "day": dt.date(2024, 2, 29), "t": dt.time(1, 2, 3, 500_000), "ts": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    "z": dt.datetime(2024, 2, 29, 1, 0, tzinfo=dt.timezone(dt.timedelta(hours=1))),
}  # fmt: skip
WRITTEN = {
    "i": 1, "l": 1 << 40, "d": 0.5, "n": 1.5, "s": "text", "b": True, "x": "/w==", "day": "2024-02-29",
    "t": "01:02:03.5", "ts": "2024-02-29 01:02:03.000004", "z": "2024-02-29 00:00:00Z",
}  # fmt: skip


def test_types_of_parquet(cluster: InMemoryCluster, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    nested = {"a": [1, None], "m": [("k", 1)], "r": {"x": 1, "y": None}}
    table = pa.Table.from_pylist([{**VALUES, **nested}, {}], schema=pa.schema([
        ("i", pa.int8()), ("l", pa.int64()), ("d", pa.float64()), ("n", pa.decimal128(10, 2)), ("s", pa.string()),
        ("b", pa.bool_()), ("x", pa.binary()), ("day", pa.date32()), ("t", pa.time32("ms")), ("ts", pa.timestamp("ns")),
        ("z", pa.timestamp("us", "Europe/Paris")), ("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32())),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]))  # fmt: skip
    pq.write_table(table, tmp_path / "f.parquet")
    columns = f"{ALL}, a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y STRING>"
    sink = f"CREATE TABLE sink ({columns}) WITH ('topic' = 'sink');"
    run(cluster, f"{files(tmp_path, 'parquet', columns)} {sink} INSERT INTO sink SELECT * FROM f;")
    found = sorted((json.loads(each.body) for each in stored(cluster, "sink")), key=lambda row: row["i"] is None)
    assert found[0] == {**WRITTEN, "a": [1, None], "m": {"k": 1}, "r": {"x": 1, "y": None}}
    assert set(found[1].values()) == {None}
    with pytest.raises(Exception, match=r"f\.parquet has no column bb: did you mean 'b'\?"):
        run(
            cluster,
            f"{files(tmp_path, 'parquet', 'bb BOOLEAN')} {SINK} INSERT INTO sink SELECT 1, CAST(bb AS STRING) FROM f;",
        )


def test_values_of_parquet_that_sql_does_not_have_are_bad_rows(cluster: InMemoryCluster, tmp_path: Path) -> None:
    """One in each column, and a row that is good."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    far = 1 << 60
    columns = {
        "day": ("DATE", pa.date32(), 1 << 30), "ts": ("TIMESTAMP(3)", pa.timestamp("ms"), far),
        "z": ("TIMESTAMP_LTZ(3)", pa.timestamp("us", "UTC"), -far), "t": ("TIME(3)", pa.time32("ms"), -1),
        "u": ("TIME(6)", pa.time64("ns"), 86_400_000_000_000), "s": ("STRING", pa.string(), b"\xff"),
        "a": ("ARRAY<TIMESTAMP(3)>", pa.list_(pa.timestamp("us")), [far]),
        "m": ("MAP<STRING, TIME(3)>", pa.map_(pa.string(), pa.time32("ms")), [("k", 86_400_000)]),
        "r": ("ROW<d DATE>", pa.struct([("d", pa.date32())]), {"d": -1 << 30}),
    }  # fmt: skip
    arrays = []
    for at, (_, kind, value) in enumerate(columns.values(), 1):
        arrays.append(_array(pa, kind, [value if each == at else None for each in range(len(columns) + 1)]))
    pq.write_table(pa.table(arrays, list(columns)), tmp_path / "f.parquet")
    table = ", ".join(f"{name} {kind}" for name, (kind, _, _) in columns.items())
    more = ", 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'"
    run(
        cluster,
        f"{files(tmp_path, 'parquet', table, more=more)} {SINK} INSERT INTO sink "
        "SELECT CAST(COUNT(*) + COUNT(a) + COUNT(m) + COUNT(r) AS INT), MAX(s) FROM f GROUP BY day, ts, z, t, u;",
    )
    assert rows(cluster) == [(4, None)]  # one row, whose list, map and row are empty
    found = [each.get_property("RMQIO_ERROR_REASON") or "" for each in stored(cluster, "letters")]
    years, day = "it has a date or time that is not in the years 1 to 9999", "it has a time that is not in a day"
    reasons = [years, years, years, day, day, "it is not UTF-8 text: invalid start byte at byte 0", years, day, years]
    assert sorted(each.partition(": ")[2] for each in found) == sorted(
        f"column {name}: {reason}" for name, reason in zip(columns, reasons, strict=True)
    )


def _array(pa: Any, kind: Any, given: list[Any]) -> Any:
    """An array of numbers and bytes as dates, times and text, which pyarrow does not check."""
    bare = {pa.types.is_date32: pa.int32(), pa.types.is_time32: pa.int32(), pa.types.is_string: pa.binary()}
    if pa.types.is_map(kind):
        found = pa.array(given, pa.map_(pa.string(), pa.int32()))
        return pa.MapArray.from_arrays(found.offsets, found.keys, found.items.view(kind.item_type))
    if pa.types.is_list(kind):
        found = pa.array(given, pa.list_(pa.int64()))
        return pa.ListArray.from_arrays(found.offsets, found.values.view(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_array(pa, kind[0].type, [each and each["d"] for each in given])], ["d"])
    return pa.array(given, next((to for test, to in bare.items() if test(kind)), pa.int64())).view(kind)


def test_types_of_sqlite(cluster: InMemoryCluster, tmp_path: Path) -> None:
    """It keeps dates, truth and decimals as text and numbers."""
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("CREATE TABLE values_ (i, l, d, n, s, b, x, day, t, ts, z)")
        connection.execute(
            "INSERT INTO values_ VALUES (1, ?, 0.5, 1.5, 'text', 1, x'ff', '2024-02-29', '01:02:03.5', "
            "'2024-02-29 01:02:03.000004', '2024-02-29 01:00:00+01:00')",
            [1 << 40],
        )
    connection.close()
    table = (
        f"CREATE TABLE f ({ALL}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:///{tmp_path / 'db'}', "
        "'table-name' = 'values_');"
    )
    run(cluster, f"{table} CREATE TABLE sink ({ALL}) WITH ('topic' = 'sink'); INSERT INTO sink SELECT * FROM f;")
    assert [json.loads(each.body) for each in stored(cluster, "sink")] == [WRITTEN]
    for column, change, message in (
        ("i", ("values_", "valuez"), r"table valuez of sqlite:.* cannot be read: no such table: valuez"),
        ("i", ("/db", "/dc"), r"there is no file .*/dc"),
        ("id", ("i INT", "id INT"), r"cannot be read: no such column: .*id"),
    ):
        with pytest.raises(Exception, match=message):
            run(
                cluster,
                f"{table.replace(*change)} {SINK} INSERT INTO sink SELECT {column}, s FROM f;",
            )


def test_bad_rows_of_files_go_where_the_table_says(cluster: InMemoryCluster, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("1,x\nmany,y\n2,0\n")
    query = "INSERT INTO sink SELECT a, CAST(10 / CAST(b AS INT) AS STRING) FROM f WHERE b <> 'x';"
    with pytest.raises(Exception, match=r"f\.csv, row 2: column a: 'many' is not a whole number"):
        run(cluster, f"{files(tmp_path / 'f.csv')} {SINK} {query}")
    given = files(tmp_path / "f.csv", more=", 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'")
    run(cluster, f"{given} {SINK} {query}")
    assert rows(cluster) == []
    letters = stored(cluster, "letters")
    assert sorted(each.body for each in letters) == [b"2,0", b"many,y"]
    assert all("f.csv, row " in " ".join(each.properties.values()) for each in letters)


@pytest.mark.parametrize(("kind", "lines"), [
    ("json", ['{"a":1,"b":"x"}', '{"a":2,"b":null}']), ("csv", ["a,b", "1,x", "2,"]), ("key-value", ["a=1,b=x", "a=2"]),
])  # fmt: skip
def test_files_are_written(cluster: InMemoryCluster, tmp_path: Path, kind: str, lines: list[str]) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 2, "b": None})
    topic = "CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't');"
    more = ", 'csv.ignore-first-line' = 'true'" if kind == "csv" else ""
    table = files(tmp_path / "out", kind, more=more)
    for _ in range(2):  # what is there stays
        run(cluster, f"{topic} {table} INSERT INTO f SELECT a, b FROM t;")
    written = sorted((tmp_path / "out").iterdir())
    assert len(written) == 2
    for path in written:
        assert path.name.startswith("part-")
        head, found = (1, path.read_text().splitlines()) if kind == "csv" else (0, path.read_text().splitlines())
        assert [*found[:head], *sorted(found[head:])] == lines
    run(cluster, f"{table} {SINK} INSERT INTO sink SELECT a, b FROM f;")
    assert rows(cluster) == in_order(
        [(1, "x"), (1, "x"), (2, None if kind != "csv" else ""), (2, None if kind != "csv" else "")]
    )


@pytest.mark.parametrize(("kind", "columns"), [("key-value", "a INT, b STRING"), ("raw", "b STRING")])
def test_a_row_that_would_be_two_lines_is_a_bad_row(
    cluster: InMemoryCluster, tmp_path: Path, kind: str, columns: str
) -> None:
    put(cluster, "t", *({"b": text} for text in ("x\ny", "z", "ends\r")))
    if kind == "raw":  # elsewhere, the key is before it
        put(cluster, "t", {"b": "\ufeffbegins"})
    topic = "CREATE TABLE t (b STRING) WITH ('topic' = 't', 'on-error' = 'skip');"
    run(cluster, f"{topic} {files(tmp_path / 'out', kind, columns)} INSERT INTO f (b) SELECT b FROM t;")
    (path,) = (tmp_path / "out").iterdir()
    assert path.read_text() == ("z\n" if kind == "raw" else "b=z\n")


@pytest.mark.parametrize("kind", ["csv", "raw"])
def test_a_line_of_blanks_is_a_row_of_one_column(cluster: InMemoryCluster, tmp_path: Path, kind: str) -> None:
    (tmp_path / "f").write_text("x\n \n\n\t\r\ny\n")
    run(cluster, f"{files(tmp_path / 'f', kind, 'b STRING')} {SINK} INSERT INTO sink SELECT 1, b FROM f;")
    assert rows(cluster) == in_order([(1, each) for each in ("x", " ", "\t", "y")])


def test_rows_of_delimiters_that_are_blanks_are_there(cluster: InMemoryCluster, tmp_path: Path) -> None:
    put(cluster, "t", {"a": 1, "b": "x"}, {}, {"b": " "})
    topic = "CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't');"
    table = files(tmp_path / "out", more=", 'csv.field-delimiter' = '\\t'")
    run(cluster, f"{topic} {table} INSERT INTO f SELECT a, b FROM t;")
    run(cluster, f"{table} {SINK} INSERT INTO sink SELECT a, b FROM f;")
    assert rows(cluster) == in_order([(1, "x"), (None, ""), (None, " ")])


def test_groups_and_several_files_are_written(cluster: InMemoryCluster, tmp_path: Path) -> None:
    put(cluster, "t", *({"a": n % 100, "b": "x"} for n in range(2000)))
    topic = "CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't');"
    table = files(tmp_path / "out", "json", "a INT PRIMARY KEY, n BIGINT", more=", 'sink.parallelism' = '3'")
    run(cluster, f"{topic} {table} INSERT INTO f SELECT a, COUNT(*) FROM t GROUP BY a;")
    found = [json.loads(line) for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()]
    assert sorted((each["a"], each["n"]) for each in found) == [(n, 20) for n in range(100)]


def planned(text: str) -> None:
    import apache_beam as beam

    from rmqio.runners import options
    from rmqio.testing import InMemoryClientFactory

    script = Script()
    script.run(text)
    connection = Connection(client_factory=InMemoryClientFactory("none"))
    translation = Translation(beam.Pipeline(options=options([])), connection)
    for sink in script.sinks:
        translation.add(sink)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    script = Script()
    script.run(files(tmp_path / "file" / "out"))
    with pytest.raises(RmqioError, match=r"file/out/part-job-00000\.csv cannot be written: Not a directory"):
        list(WriteFileFn(script.catalog.tables["f"], (), "job").process((0, [[b"1,x"]])))


@in_own_process
def test_a_file_that_cannot_be_ended_leaves_nothing(tmp_path: Path) -> None:
    """It is too large for this process when its buffer is written, as on a full disk."""
    script = Script()
    script.run(files(tmp_path / "out"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(RmqioError, match=r"part-job-00000\.csv cannot be written: File too large"):
            list(WriteFileFn(script.catalog.tables["f"], (), "job").process((0, [[b"1," + b"x" * 100]])))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("1,x\n")
    topic = "CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't');"
    with pytest.raises(SqlError, match=r"all rows have arrived, but the input does not end: add --stop latest"):
        planned(f"{topic} {files(tmp_path / 'out')} INSERT INTO f SELECT a, b FROM t;")
    with pytest.raises(SqlError, match=r"f has the path .*f\.csv': files are written into a folder"):
        planned(f"{files(tmp_path / 'f.csv')} INSERT INTO f SELECT 1, 'x';")
    with pytest.raises(SqlError, match=r"raw\.charset is utf-16-le: files have lines of UTF-8"):
        planned(files(tmp_path / "f", "raw", "a STRING", more=", 'raw.charset' = 'UTF-16LE'"))
    with pytest.raises(SqlError, match=r"key-value\.pair-delimiter has a line break"):
        planned(files(tmp_path / "f", "key-value", more=", 'key-value.pair-delimiter' = '\\n'"))
    with pytest.raises(SqlError, match=r"the table f cannot be read: there is no file .*none\.csv"):
        planned(f"{files(tmp_path / 'none.csv')} {SINK} INSERT INTO sink SELECT a, b FROM f;")


def test_the_plan_shows_files(tmp_path: Path) -> None:
    script = Script()
    script.run(
        f"{files(Path('/data/*.csv'))} {files(Path('/out'), 'json', name='g')}EXPLAIN INSERT INTO g SELECT a, b FROM f;"
    )
    shown = explain(script.explained)
    assert "Insert into g (files /out, json), append-only" in shown
    assert "Read f (files /data/*.csv, csv), append-only, ends" in shown


def value_of(kind: str, given: Any) -> Any:
    from rmqio.sql.formats.python_rows import converter
    from tests.unit.sql.evaluating import type_of

    return converter(type_of(kind))(given)


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("INT", True, 1), ("INT", Decimal("7"), 7), ("INT", 7.0, 7), ("INT", "7", 7),
        ("STRING", {"a": [1]}, '{"a":[1]}'),
        ("STRING", 1.5, "1.5"), ("STRING", b"x", "x"), ("STRING", Decimal("1.50"), "1.50"), ("BOOLEAN", b"\x01", True),
        ("BOOLEAN", "no", False), ("DECIMAL(5, 1)", 0.25, Decimal("0.3")),
        ("TIME(3)", dt.timedelta(hours=1), 3_600_000_000),
        ("TIMESTAMP(3)", dt.date(1970, 1, 2), 86_400_000_000), ("DATE", dt.datetime(1970, 1, 2, 3), 1),
        ("TIMESTAMP_LTZ(3)", "1970-01-01 00:00:01Z", 1_000_000),
        ("TIMESTAMP_LTZ(3)", dt.datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        ("ARRAY<INT>", "[1, null]", [1, None]),
    ],
)  # fmt: skip
def test_values_of_drivers(kind: str, given: Any, wanted: Any) -> None:
    found = value_of(kind, given)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("kind", "given"),
    [("INT", 1.5), ("INT", "x"), ("INT", 1 << 31), ("INT", float("nan")), ("BOOLEAN", 2), ("STRING", b"\xff"),
     ("DATE", 5), *(pytest.param(kind, 10**5000, id=f"{kind} of 5000 digits") for kind in ("INT", "STRING", "BOOLEAN")),
     ("TIME(3)", dt.timedelta(hours=30)), ("TIMESTAMP(3)", 5), ("ARRAY<INT>", 5), ("BYTES", 5), ("DOUBLE", b"")],
)  # fmt: skip
def test_values_that_do_not_fit(kind: str, given: Any) -> None:
    from rmqio.sql.values import ValueFailure

    with pytest.raises(ValueFailure):
        value_of(kind, given)
