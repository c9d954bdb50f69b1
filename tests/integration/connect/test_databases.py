"""`WriteToSql` and `ReadFromSql` on MariaDB and PostgreSQL: types, errors of single rows, a server that is killed."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

import sqlalchemy

from rmqio.connect import Batching, ReadFromSql, Retry, WriteToSql
from rmqio.connect.copying.job import ToMessage
from rmqio.connect.rows import to_json
from rmqio.connect.sql.engine import Database, DatabaseAway
from tests.helpers.pipelines.held import Hold, during
from tests.helpers.servers.database import Server
from tests.helpers.servers.mariadb import mariadb_server
from tests.helpers.servers.postgresql import postgresql_server
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow

_COLUMNS = {
    "mysql": "id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(12, 2), at DATETIME(6), day DATE, "
    "data BLOB, f DOUBLE, yes BOOLEAN, more JSON, n INTEGER CHECK (n < 100)",
    "postgresql": "id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, price NUMERIC(12, 2), at TIMESTAMPTZ, day DATE, "
    "data BYTEA, f FLOAT8, yes BOOLEAN, more JSONB, n INTEGER CHECK (n < 100)",
}


class Shop:
    """A server, and questions about its tables."""

    def __init__(self, server: Server, kind: str) -> None:
        self.server, self.url, self.kind = server, server.url, kind

    def run(self, *statements: str) -> list[Any]:
        """The rows of the last statement."""
        engine = Database(self.url).engine()
        rows: list[Any] = []
        with engine.begin() as connection:
            for each in statements:
                found = connection.execute(sqlalchemy.text(each))
                rows = [tuple(row) for row in found] if found.returns_rows else []
        engine.dispose()
        return rows


@pytest.fixture(scope="module", params=["mysql", "postgresql"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with (mariadb_server if request.param == "mysql" else postgresql_server)() as server:
        yield Shop(server, request.param)


def users(shop: Shop) -> str:
    shop.run("DROP TABLE IF EXISTS users", f"CREATE TABLE users ({_COLUMNS[shop.kind]})")
    return "users"


def test_every_type_is_written_and_read_again(shop: Shop) -> None:
    row = {
        "id": 1, "name": "Ä %s :x ' 😀", "price": "12.50", "at": "2024-01-02T04:04:05.000006+01:00",
        "day": "2024-02-29", "data": "aGk=", "f": 0.1, "yes": True, "more": {"a": [1, None]}, "n": None,
    }  # fmt: skip
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([row]) | WriteToSql(shop.url, users(shop))
    read: list[Any] = []

    def check(found: dict[str, Any]) -> None:
        at = found["at"] if found["at"].tzinfo else found["at"].replace(tzinfo=dt.UTC)
        assert at == dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)
        assert (found["id"], found["name"], found["price"]) == (1, row["name"], Decimal("12.50"))
        assert (found["day"], found["data"], found["f"]) == (dt.date(2024, 2, 29), b"hi", 0.1)
        assert (bool(found["yes"]), found["n"]) == (True, None)
        read.append(found)

    with beam.Pipeline() as pipeline:
        _ = pipeline | ReadFromSql(shop.url, "users", partition_on="id") | beam.Map(check)
    assert shop.run("SELECT count(*) FROM users") == [(1,)]


def test_json_travels_through_messages_and_is_the_same(shop: Shop) -> None:
    document = '{"a": [1, "x", null], "b": "{}"}'
    for each in ("json_source", "json_target"):
        shop.run(f"DROP TABLE IF EXISTS {each}", f"CREATE TABLE {each} (id INTEGER PRIMARY KEY, doc JSON)")
    shop.run(f"INSERT INTO json_source VALUES (1, '{document}')")
    with beam.Pipeline() as pipeline:
        bodies = pipeline | ReadFromSql(shop.url, "json_source") | beam.Map(lambda row: ToMessage(None)(row).body)
        _ = bodies | WriteToSql(shop.url, "json_target")
    ((found,),) = shop.run("SELECT doc FROM json_target")
    assert (found if isinstance(found, dict) else json.loads(found)) == json.loads(document)


_TIMES_OF_DAY = ["09:05:00", "00:00:00", "23:59:59.000001"]
_OTHER_TIMES = ["-01:30:00", "-00:00:00.500000", "26:00:00", "-838:59:59", "838:59:59"]
_MONTHS = ["2 mons", "-1 years -1 mons +2 days -00:00:00.5", "178000000 years"]


@pytest.mark.parametrize("kind", ["TIME(6)", "INTERVAL"])
def test_every_time_travels_through_messages_and_is_the_same(shop: Shop, kind: str) -> None:
    """As text: for PostgreSQL, 2 months are equal to 60 days."""
    if shop.kind == "mysql" and kind == "INTERVAL":
        pytest.skip("MariaDB has no intervals")
    for each in ("times", "times_of_messages", "times_of_rows"):
        shop.run(f"DROP TABLE IF EXISTS {each}", f"CREATE TABLE {each} (id INTEGER PRIMARY KEY, t {kind})")
    more = _OTHER_TIMES if shop.kind == "mysql" or kind == "INTERVAL" else []
    times = [*_TIMES_OF_DAY, *more, *(_MONTHS if kind == "INTERVAL" else [])]
    shop.run(f"INSERT INTO times VALUES {', '.join(str(each) for each in enumerate(times))}")
    with beam.Pipeline() as pipeline:
        rows = pipeline | ReadFromSql(shop.url, "times")
        _ = rows | "Rows" >> WriteToSql(shop.url, "times_of_rows")
        bodies = rows | beam.Map(lambda row: ToMessage(None)(row).body)
        _ = bodies | "Messages" >> WriteToSql(shop.url, "times_of_messages")
    query = "SELECT id, CAST(t AS CHAR(60)) FROM {} ORDER BY id"
    stored = [shop.run(query.format(each)) for each in ("times", "times_of_messages")]
    assert stored[0] == stored[1] == shop.run(query.format("times_of_rows"))
    assert len(stored[0]) == len(times)


_AWAY_FROM_UTC = {
    "mysql": ("SET GLOBAL time_zone = '+02:00'", "SET GLOBAL time_zone = 'SYSTEM'", "TIMESTAMP(6) NULL", "DATETIME(6)"),
    "postgresql": (
        "ALTER ROLE CURRENT_USER SET timezone = 'Europe/Berlin'", "ALTER ROLE CURRENT_USER RESET timezone",
        "TIMESTAMPTZ", "TIMESTAMP",
    ),
}  # fmt: skip


def test_times_do_not_depend_on_the_zone_of_the_server(shop: Shop) -> None:
    """MySQL converts a TIMESTAMP to the zone of the session and back, by default that of the server."""
    there, back, with_zone, without = _AWAY_FROM_UTC[shop.kind]
    shop.run("DROP TABLE IF EXISTS times", f"CREATE TABLE times (id INT PRIMARY KEY, at {with_zone}, plain {without})")
    seconds = "UNIX_TIMESTAMP(at)" if shop.kind == "mysql" else "EXTRACT(EPOCH FROM at)"
    at = "2024-03-31T03:30:00.000001+01:00"

    def check(row: dict[str, Any]) -> None:
        for name in ("at", "plain"):
            found = row[name] if row[name].tzinfo else row[name].replace(tzinfo=dt.UTC)
            assert found == dt.datetime(2024, 3, 31, 2, 30, 0, 1, dt.UTC), name

    shop.run(there)
    try:
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create([{"id": 1, "at": at, "plain": at}]) | WriteToSql(shop.url, "times")
        (found,) = shop.run(f"SELECT {seconds} FROM times")
        assert found == (Decimal("1711852200.000001"),)
        with beam.Pipeline() as pipeline:
            _ = pipeline | ReadFromSql(shop.url, "times") | beam.Map(check)
    finally:
        shop.run(back)


def test_numbers_of_json_keep_all_their_digits_where_the_column_has_room(shop: Shop) -> None:
    """In MariaDB, JSON is a text; PostgreSQL reads its JSON with all digits, too."""
    real = "DOUBLE" if shop.kind == "mysql" else "FLOAT8"
    shop.run(
        "DROP TABLE IF EXISTS digits",
        f"CREATE TABLE digits (d DECIMAL(40, 20) PRIMARY KEY, n BIGINT, f {real}, t VARCHAR(60), j JSON)",
    )
    digits = "12345678901234567890.12345678901234567890"
    body = f'{{"d": {digits}, "n": 9007199254740993.0, "f": {digits}, "t": {digits}, "j": {{"a": [{digits}, 0.1]}}}}'
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([body.encode()]) | WriteToSql(shop.url, "digits")
    ((d, n, f, t, j),) = shop.run("SELECT * FROM digits")
    assert (d, n, f, t) == (Decimal(digits), 9007199254740993, float(digits), digits)
    assert (json.loads(j) if isinstance(j, str) else j) == {"a": [float(digits), 0.1]}

    def check(rows: list[Any]) -> None:
        (row,) = rows
        found = row["j"] if isinstance(row["j"], str) else to_json(row["j"])
        assert found == f'{{"a":[{digits},0.1]}}'

    with beam.Pipeline() as pipeline:
        _ = pipeline | ReadFromSql(shop.url, "digits") | beam.combiners.ToList() | beam.Map(check)


def test_a_number_that_the_database_does_not_have_goes_out_alone(shop: Shop) -> None:
    """JSON's 1e400 is infinite in Python, but no infinity; Python reads NaN and Infinity, which PostgreSQL has."""
    bodies = [
        b'{"id": %d, "name": "a", "f": %s}' % each for each in enumerate([b"1e400", b"NaN", b"-Infinity", b"null"])
    ]

    wanted = bodies[:3] if shop.kind == "mysql" else bodies[:1]

    def check(failures: list[Any]) -> None:
        assert sorted(each.body for each in failures) == wanted

    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([bodies]) | WriteToSql(shop.url, users(shop), batches=True, on_failure="output")
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    found = shop.run("SELECT id FROM users ORDER BY id")
    assert found == ([(3,)] if shop.kind == "mysql" else [(1,), (2,), (3,)])


def test_a_row_that_is_larger_than_the_server_takes_goes_out_alone(shop: Shop) -> None:
    """MariaDB ends the connection, as if it were away: the batch was tried again for ever."""
    if shop.kind != "mysql":
        pytest.skip("PostgreSQL takes rows of any size that fit into memory")
    name, before = users(shop), shop.run("SELECT @@max_allowed_packet")[0][0]
    shop.run("ALTER TABLE users MODIFY data LONGBLOB")
    sizes = (10, 3_000_000, 1_200_000, 1_000_000)  # a byte has two digits in the statement
    rows = [{"id": n, "name": "a", "data": b"a" * size} for n, size in enumerate(sizes)]

    def check(failures: list[Any]) -> None:
        assert len(failures) == 2, [each.reason for each in failures]
        assert all("max_allowed_packet" in each.reason for each in failures), [each.reason for each in failures]

    shop.run("SET GLOBAL max_allowed_packet = 2097152")
    try:
        with beam.Pipeline() as pipeline:
            write = WriteToSql(shop.url, name, batches=True, on_failure="output", retry=Retry(give_up_after_s=20))
            _ = (pipeline | beam.Create([rows]) | write).failed | beam.combiners.ToList() | beam.Map(check)
    finally:
        shop.run(f"SET GLOBAL max_allowed_packet = {before}")
    assert shop.run("SELECT id, LENGTH(data) FROM users ORDER BY id") == [(0, 10), (3, 1_000_000)]


_REFUSED = {"n INT NOT NULL": "doesn't have a default", "n INT AS (1 DIV LENGTH(name)) STORED": "Division by 0"}
"""Columns that a row without n and with an empty name cannot have, whose codes have no state, or one of PostgreSQL."""


@pytest.mark.parametrize("column", _REFUSED)
def test_an_error_of_a_row_without_a_state_of_its_own_goes_out_alone(shop: Shop, column: str) -> None:
    if shop.kind != "mysql":
        pytest.skip("PostgreSQL has a state for each error")
    shop.run("DROP TABLE IF EXISTS named", f"CREATE TABLE named (id INT PRIMARY KEY, name VARCHAR(9), {column})")
    rows: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2, "name": ""}]
    if "NOT NULL" in column:
        rows[0]["n"] = 1

    def check(failures: list[Any]) -> None:
        assert [_REFUSED[column] in " ".join(each.reason.split()) for each in failures] == [True], failures

    with beam.Pipeline() as pipeline:
        write = WriteToSql(shop.url, "named", batches=True, on_failure="output", retry=Retry(give_up_after_s=20))
        _ = (pipeline | beam.Create([rows]) | write).failed | beam.combiners.ToList() | beam.Map(check)
    assert shop.run("SELECT id FROM named") == [(1,)]


def test_a_table_whose_columns_have_other_types_fails_and_drops_nothing(shop: Shop) -> None:
    if shop.kind != "postgresql":
        pytest.skip("MariaDB tells values that do not fit from types that do not")
    shop.run("DROP TABLE IF EXISTS places", "CREATE TABLE places (id INT PRIMARY KEY, place INET)")
    rows = [{"id": number, "place": number} for number in range(20)]
    with pytest.raises(Exception, match=r"takes none of 20 rows, .*type inet"):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create([rows]) | WriteToSql(shop.url, "places", batches=True, on_failure="output")


def test_a_value_whose_type_the_column_cannot_be_given_goes_out_alone(shop: Shop) -> None:
    """And a number in an array keeps its digits, as MariaDB's JSON does, which is text."""
    is_array = shop.kind == "postgresql"
    kind, good, bad = ("INET, d NUMERIC(30, 10)[]", '"::1"', "5") if is_array else ("YEAR, d JSON", "2001", '"soon"')
    shop.run("DROP TABLE IF EXISTS places", f"CREATE TABLE places (id INT PRIMARY KEY, place {kind})")
    digits = "12345678901234567890.0123456789"
    texts = (f'"place": {good}, "d": [{digits}, 1, null]', f'"place": {bad}', f'"place": {good}')
    bodies = [f'{{"id": {number}, {text}}}'.encode() for number, text in enumerate(texts)]

    def check(failures: list[Any]) -> None:
        assert [each.body for each in failures] == bodies[1:2]

    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([bodies]) | WriteToSql(shop.url, "places", batches=True, on_failure="output")
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    ((_, d), (_, nothing)) = shop.run("SELECT id, d FROM places ORDER BY id")
    assert nothing is None
    assert d == ([Decimal(digits), 1, None] if is_array else f"[{digits},1,null]")


def test_what_the_database_refuses_goes_out_alone(shop: Shop) -> None:
    good = [{"id": number, "name": f"n{number}", "n": number % 100} for number in range(200)]
    bad = [
        {"id": 900, "name": "x" * 41},
        {"id": 901, "name": None},
        {"id": 902, "name": "check", "n": 100},
        {"id": 2**70, "name": "range"},
        {"id": 903, "name": "money", "price": "12345678901.00"},
        {"id": 904, "name": "day", "day": "2024-02-30"},
    ]
    rows = good[:70] + bad[:3] + good[70:] + bad[3:]

    def check(failures: list[Any]) -> None:
        assert len(failures) == len(bad), [each.reason for each in failures]

    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([rows]) | WriteToSql(shop.url, users(shop), batches=True, on_failure="output")
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    assert shop.run("SELECT id, name FROM users ORDER BY id") == [(row["id"], row["name"]) for row in good]


def test_upserts_change_ignores_keep_and_both_can_be_repeated(shop: Shop) -> None:
    users(shop)
    first = [{"id": number, "name": "old", "n": 1} for number in (1, 2, 1)]
    later = [{"id": 2, "name": "new"}, {"id": 3, "name": "new"}, {"id": 2, "name": "newer"}]
    for mode, wanted in (("ignore", "old"), ("upsert", "newer")):
        for rows in (first, later, later):
            with beam.Pipeline() as pipeline:
                _ = pipeline | beam.Create([rows]) | WriteToSql(shop.url, "users", mode=mode, batches=True)
        found = {row[0]: row[1:] for row in shop.run("SELECT id, name, n FROM users")}
        assert found == {1: ("old", 1), 2: (wanted, 1), 3: ("new", None)}


_LOOSE = {
    "mysql": ["CREATE TABLE loose (k VARCHAR(20) COLLATE {} PRIMARY KEY, x INTEGER, y INTEGER)"],
    "postgresql": [
        "DROP COLLATION IF EXISTS loose_texts",
        "CREATE COLLATION loose_texts (provider = icu, locale = '{}', deterministic = false)",
        "CREATE TABLE loose (k TEXT COLLATE loose_texts PRIMARY KEY, x INTEGER, y INTEGER)",
    ],
}


@pytest.mark.parametrize(
    "collations", [("utf8mb4_general_ci", "und-u-ks-level1"), ("utf8mb4_german2_ci", "de-u-ks-level1")]
)
@pytest.mark.parametrize("mode", ["upsert", "ignore"])
def test_rows_whose_keys_are_equal_for_the_collation_keep_their_order(
    shop: Shop, collations: tuple[str, str], mode: str
) -> None:
    collation = collations[shop.kind == "postgresql"]
    shop.run("DROP TABLE IF EXISTS loose", *(each.format(collation) for each in _LOOSE[shop.kind]))
    keys = ["a", "A", "ä", "Ä", "s", "ß", "ss", "é", "E", "x ", "x", "o", "ö", "oe", "😀", "😁"]
    columns = itertools.cycle(["x", "xy", "y", "x", "xy"])
    rows = [{"k": key, **dict.fromkeys(next(columns), n)} for n, key in enumerate([*keys, *reversed(keys), *keys])]
    found = []
    for max_rows in (1, 1_000):
        shop.run("DELETE FROM loose")
        with beam.Pipeline() as pipeline:
            write = WriteToSql(shop.url, "loose", mode=mode, batches=True, batching=Batching(max_rows=max_rows))
            _ = pipeline | beam.Create([rows]) | write
        found.append(shop.run("SELECT x, y FROM loose ORDER BY x, y"))
    assert found[0] == found[1]
    assert len(found[0]) < len(keys)


_TIMES: list[Any] = [
    "2024-01-01 00:00:00.4", "2024-01-01 00:00:00", 1_704_067_200_400, "2024-01-01 00:00:00.0004",
    "2023-12-31T23:59:59.9996", dt.datetime(2024, 1, 1, 0, 0, 0, 400), "2024-01-01T01:00:00.4+01:00",
]  # fmt: skip
_DECIMALS: list[Any] = ["1.001", "1", 1, 1.0, "1.00", Decimal("1.002"), "0.996", "1e0", "1.01"]
_ROUNDING: dict[str, dict[str, list[Any]]] = {
    "mysql": {
        "DATETIME": _TIMES, "TIMESTAMP(3)": _TIMES, "DECIMAL(10, 2)": _DECIMALS, "TIME": ["00:00:01.4", "00:00:01"],
        "FLOAT": [1.0, "1.00000001", 1], "BINARY(4)": [b"a", b"a\0", b"a\0\0\0"], "YEAR": [1, 2001, "01"],
        "VARCHAR(30), UNIQUE u (k(3))": ["abcd", "abce", "abc"],
    },
    "postgresql": {
        "TIMESTAMP(0)": _TIMES, "TIMESTAMPTZ(3)": _TIMES, "NUMERIC(10, 2)": _DECIMALS,
        "TIME(0)": ["00:00:01.4", "00:00:01"], "REAL": [1.0, "1.00000001", 1], "MONEY": ["1", "1.00", "$1.00"],
        "TIMETZ(0)": ["12:00:00.4+01:00", "11:00:00+00:00", "12:00:00+01:00"], "INT4RANGE": ["[1,3)", "[1,2]"],
        "INTERVAL(0)": ["1.4 s", "1 s", "1.6 s", "2 s"], "INTERVAL": ["1 day", "24 hours", "1440 min"],
        "INTEGER[]": [[1, 2], [1], [1, 3]],
    },
}  # fmt: skip
"""Types of columns that store some different keys as one, with such keys."""


@pytest.mark.parametrize("mode", ["upsert", "ignore"])
def test_rows_whose_keys_are_equal_when_they_are_stored_keep_their_order(shop: Shop, mode: str) -> None:
    """A batch ends as its rows one by one. Rows of one key have different columns, and are in different statements."""
    columns = _ROUNDING[shop.kind]
    found: list[list[Any]] = []
    for max_rows in (1, 1_000):
        pipeline = beam.Pipeline()
        for place, (column, keys) in enumerate(columns.items()):
            table = f"loose_{place}"
            primary = "" if "UNIQUE" in column else "PRIMARY KEY"
            shop.run(f"DROP TABLE IF EXISTS {table}")
            shop.run(f"CREATE TABLE {table} (x INTEGER, y INTEGER, k {column} {primary})")
            names = itertools.cycle(["x", "xy", "y", "x", "xy"])
            some = [*keys, *reversed(keys), *keys, *keys[::2], *keys[1::2]]
            rows = [{"k": key, **dict.fromkeys(next(names), n)} for n, key in enumerate(some)]
            batching = Batching(max_rows=max_rows)
            write = WriteToSql(shop.url, table, mode=mode, key="k", batches=True, batching=batching)
            _ = pipeline | f"Rows of {table}" >> beam.Create([rows]) | f"Write {table}" >> write
        pipeline.run().wait_until_finish()
        found.append([shop.run(f"SELECT x, y FROM loose_{place} ORDER BY x, y") for place in range(len(columns))])
    for (column, keys), one_by_one, at_once in zip(columns.items(), *found, strict=True):
        assert at_once == one_by_one, column
        assert len(at_once) < len(keys) or column == "INTEGER[]", column


def test_keys_that_a_database_without_strict_mode_cuts_keep_their_order(shop: Shop) -> None:
    if shop.kind != "mysql":
        pytest.skip("PostgreSQL has no such mode")
    shop.run("DROP TABLE IF EXISTS loose", "CREATE TABLE loose (k VARCHAR(3) PRIMARY KEY, x INTEGER, y INTEGER)")
    rows = [{"k": "abc1", "x": 0}, {"k": "abc2", "x": 1, "y": 1}, {"k": "abc3", "x": 2}]
    with beam.Pipeline() as pipeline:
        url = f"{shop.url}&init_command=SET+sql_mode=''"
        _ = pipeline | beam.Create([rows]) | WriteToSql(url, "loose", batches=True)
    assert shop.run("SELECT x, y FROM loose") == [(2, 1)]


def started_when_away(shop: Shop, caplog: pytest.LogCaptureFixture) -> threading.Thread:
    """Returns a thread that starts the server when the log says that it is away."""

    def start() -> None:
        try:
            until(lambda: "is away or busy" in caplog.text, "a try without the server")
        finally:
            shop.server.start()

    return threading.Thread(target=start)


def test_a_server_killed_midway_loses_and_doubles_nothing(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is killed after half of the rows, and starts again when it is missed. The write goes on."""
    users(shop)
    rows = [{"id": number, "name": f"n{number}"} for number in range(2000)]
    starter = started_when_away(shop, caplog)
    written: list[int] = []

    def kill() -> None:
        written.append(shop.run("SELECT count(*) FROM users")[0][0])
        shop.server.kill()
        starter.start()

    pipeline = beam.Pipeline()
    write = WriteToSql(shop.url, "users", batching=Batching(max_rows=20), retry=Retry(max_wait_s=0.5))
    held = pipeline | beam.Create(rows, reshuffle=False) | beam.ParDo(Hold(tmp_path, after=1000))
    _ = held | write
    with during(tmp_path, kill):
        result = pipeline.run()
        result.wait_until_finish()
    starter.join()
    counters = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    assert 0 < written[0] <= 1000
    assert counters["row_write_retries"] > 0
    said = [each.getMessage() for each in caplog.records if each.name == "rmqio.connect"]
    assert len(said) == 2
    assert "is away or busy; it is tried again for 120 s at most: " in said[0]
    assert " is back after " in said[1]
    assert counters["rows_written"] == 2000
    assert shop.run("SELECT id, name FROM users ORDER BY id") == [(row["id"], row["name"]) for row in rows]


_MANY = {
    "mysql": "SELECT seq AS id, REPEAT('x', 1000) AS text FROM seq_1_to_50000",
    "postgresql": "SELECT id, repeat('x', 1000) AS text FROM generate_series(1, 50000) AS id",
}
"""50 MB: more than what the client and the system have fetched ahead when the server is killed."""


def test_a_server_killed_while_it_is_read_fails_the_read_and_the_next_one_waits(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The read fails when its server goes midway. Started again, it waits for a server that is still away."""

    def read(folder: Path | None) -> None:
        def check(count: int) -> None:
            assert count == 50_000

        with beam.Pipeline() as pipeline:
            rows = pipeline | ReadFromSql(shop.url, _MANY[shop.kind], retry=Retry(max_wait_s=0.5))
            rows = rows if folder is None else rows | beam.ParDo(Hold(folder))
            _ = rows | beam.Map(lambda row: row["id"]) | beam.combiners.Count.Globally() | beam.Map(check)

    with pytest.raises(DatabaseAway, match="cannot be read"), during(tmp_path, shop.server.kill):
        read(tmp_path)
    caplog.clear()
    starter = started_when_away(shop, caplog)
    starter.start()
    read(None)
    starter.join()
    gc.collect()  # a result that is collected after its connection has broken must be silent
