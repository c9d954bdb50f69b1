"""`WriteToSql` and `ReadFromSql` on SQLite. tests/integration/connect has MariaDB and PostgreSQL."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import sqlite3
import threading
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

import apache_beam as beam
import sqlalchemy as sa

from rmqio.connect import KafkaRecord, ReadFromSql, Retry, RowRefused, WriteToSql
from rmqio.connect.kafka.records import message_of
from rmqio.connect.sink import Verdict
from rmqio.connect.sql.columns import converter_of
from rmqio.connect.sql.engine import Database, TableOptions, is_away, verdict_of
from rmqio.connect.sql.sink import SqlSink
from rmqio.errors import LocalError, SerdeError
from rmqio.model import TOMBSTONE, Message
from rmqio.serde.strict_json import JsonNumber
from tests.helpers.waiting import until

_TABLE = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, mail TEXT UNIQUE, at DATETIME, price DECIMAL, "
    "rate REAL, more)"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute(_TABLE)
        connection.execute("CREATE TABLE plain (a INTEGER, b TEXT)")
    connection.close()
    return f"sqlite:///{path}"


def stored(url: str, query: str = "SELECT id, name FROM users ORDER BY id") -> list[Any]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    found = connection.execute(query).fetchall()
    connection.close()
    return found


_OPEN: list[SqlSink] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes what `sink` has opened: Python 3.13 warns of a connection that nobody closed."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def sink(url: str, mode: str = "upsert", key: tuple[str, ...] | None = None, **more: Any) -> SqlSink:
    options = {"columns": None, "ignore_unknown": False, **more}
    found = SqlSink(Database(url), "users", TableOptions(key, mode, **options))
    found.open()
    _OPEN.append(found)
    return found


def test_upserts_are_idempotent_and_the_last_row_of_a_key_counts(url: str) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}]
    for _ in range(2):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create([rows]) | WriteToSql(url, "users", batches=True)
        assert stored(url) == [(1, "c"), (2, "b")]


def test_a_row_changes_the_columns_that_it_has(url: str) -> None:
    found = sink(url)
    found.write([{"id": 1, "name": "a", "mail": "x"}, {"id": 1, "name": "b"}], None)
    assert stored(url, "SELECT name, mail FROM users") == [("b", "x")]
    found.write([{"id": 1, "name": "c"}, {"id": 1, "name": "c", "mail": None}], None)
    assert stored(url, "SELECT name, mail FROM users") == [("c", None)]
    found.close()


def test_rows_of_a_unique_key_that_is_not_the_primary_one(url: str) -> None:
    found = sink(url, key=("mail",))
    found.write([{"id": 1, "name": "a", "mail": "x"}], None)
    found.write([{"id": 1, "name": "b", "mail": "x"}], None)
    assert stored(url) == [(1, "b")]
    found.close()


def test_ignore_keeps_the_first_row(url: str) -> None:
    found = sink(url, "ignore")
    found.write([{"id": 1, "name": "a"}, {"id": 1, "name": "b"}], None)
    found.write([{"id": 1, "name": "c"}, {"id": 2, "name": "d"}], None)
    assert stored(url) == [(1, "a"), (2, "d")]
    found.close()


def test_insert_refuses_what_is_there(url: str) -> None:
    found = sink(url, "insert")
    found.write([{"id": 1, "name": "a"}], None)
    with pytest.raises(RowRefused, match="UNIQUE constraint failed"):
        found.write([{"id": 2, "name": "b"}, {"id": 1, "name": "b"}], None)
    assert stored(url) == [(1, "a")]  # the batch is one transaction
    found.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "userz"}, "there is no such table; did you mean users"),
        ({"key": "nmae"}, "has no column nmae; did you mean name"),
        ({"key": "name"}, r"the key \(name\) is not a primary key and has no unique index.*its keys: \(id\), \(mail\)"),
        ({"columns": ["id", "nam"]}, "has no column nam; did you mean name"),
        ({"table": "plain"}, 'has no primary key: mode="upsert" needs one'),
        ({"columns": ["name"]}, "columns leaves out id, which is the key"),
    ],
)
def test_a_table_that_cannot_be_used_fails_at_the_start(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create([{"id": 1}]) | WriteToSql(url, **{"table": "users", **options})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 3, "nmae": "x"}, "has no column nmae; did you mean name"),
        ({"name": "x"}, "the row has no id, which is its key"),
        ({"id": 3, "name": "x", "at": "yesterday"}, "column at: Invalid isoformat string: 'yesterday'"),
        ({"id": 3, "name": None}, "NOT NULL constraint failed: users.name"),
        ({"id": 3, "name": "x", "price": "12,5"}, "column price"),
        ({"id": 2.5, "name": "x"}, "column id: 2.5 is not a whole number"),
        (b'{"id": 3, "name": "\\ud800"}', "surrogates not allowed"),  # these two are errors of the driver's own
        ({"id": 1 << 70, "name": "x"}, "Python int too large"),
        (b'{"id": 3, "name": "x", "rate": NaN}', "column rate: the database has no number nan"),  # it would be NULL
        (b'{"id": 3, "name": "x", "rate": -1e400}', "column rate: -1e400 is more than a double can be"),
        (b'{"id": 3, "name": "x", "rate": "1e400"}', "column rate: 1e400 is more than a double can be"),
        (b'{"id": 3, "name": "x", "more": 1e400}', "column more: 1e400 is more than a double can be"),
        ({"id": 3, "name": "x", "more": float("nan")}, "column more: the database has no number nan"),
        ({"id": 3, "name": "x", "more": [float("inf")]}, "column more: the row cannot be written as JSON"),
    ],
)
def test_one_bad_row_stops_no_other(url: str, row: Any, message: str) -> None:
    def check(failures: list[Any]) -> None:
        assert len(failures) == 1
        assert message in failures[0].reason

    rows = [{"id": 1, "name": "a"}, row, {"id": 2, "name": "b"}]
    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([rows]) | WriteToSql(url, "users", batches=True, on_failure="output")
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    assert stored(url) == [(1, "a"), (2, "b")]


def test_a_value_that_an_index_cannot_be_computed_of_refuses_its_row(url: str) -> None:
    """SQLite has one code for this and for much else; it was taken for a server that is away."""
    found = sink(url)
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("CREATE INDEX of_more ON users (json_extract(more, '$.a'))")
    with pytest.raises(RowRefused, match="malformed JSON"):
        found.write([{"id": 1, "name": "a", "more": "no JSON"}], None)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (
            "CREATE TRIGGER parsed BEFORE INSERT ON users BEGIN SELECT json_extract(NEW.more, '$.a'); END",
            "malformed JSON",
        ),
        (
            "CREATE TRIGGER noted BEFORE INSERT ON users BEGIN SELECT load_extension(NEW.name); END",
            "not authorized|unsafe",
        ),
    ],
)
def test_a_table_that_takes_no_row_at_all_fails_and_drops_nothing(url: str, statement: str, why: str) -> None:
    rows = [{"id": number, "name": "a", "more": "no JSON"} for number in range(20)]
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute(statement)
    with pytest.raises(Exception, match=f"takes none of 20 rows, .* set up for other rows: .*({why})"):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create([rows]) | WriteToSql(url, "users", batches=True, on_failure="output")
    assert stored(url) == []


def test_a_write_that_fails_says_why_and_shows_no_values(url: str) -> None:
    """SQLAlchemy's text has the statement, the values of all rows, and, in its last line, a link."""
    found, name = sink(url), "x" * 30
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("ALTER TABLE users DROP COLUMN rate")
    with pytest.raises(LocalError) as caught:
        found.write([{"id": 1, "name": name, "rate": 1.5}], None)
    assert re.fullmatch(
        r"table users of sqlite:.*shop.db cannot be written: table users has no column named rate", str(caught.value)
    )
    assert found.judge(caught.value) is Verdict.FAIL
    assert name not in "".join(traceback.format_exception(caught.value))


def test_none_is_null_in_a_column_of_json_too(url: str) -> None:
    path = url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE users ADD COLUMN doc JSON")
    connection.close()
    rows = [{"id": 1, "name": "a", "doc": None}, {"id": 2, "name": "b", "doc": {"a": None}}]
    assert sink(url).write(rows, None) is None
    assert stored(url, "SELECT id, doc FROM users ORDER BY id") == [(1, None), (2, '{"a":null}')]


class DriverError(Exception):
    """PostgreSQL's driver has states, MySQL's has codes, and newer versions states, too."""

    def __init__(self, code: int | str, state: str | None = None) -> None:
        super().__init__(code)
        self.sqlstate = code if isinstance(code, str) else state


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        *((code, Verdict.ROWS) for code in (1364, 1365, 1366, 1557, 1586, 1761, 1762, 2020, 3141, 3616, 3617, 4038)),
        (1062, Verdict.ROWS), (1153, Verdict.ROWS), (1644, Verdict.ROWS), (1146, Verdict.FAIL), (1213, Verdict.RETRY),
        ("23505", Verdict.ROWS), ("21000", Verdict.ROWS), ("44000", Verdict.ROWS), ("54000", Verdict.ROWS),
        ("P0001", Verdict.ROWS), ("42P01", Verdict.FAIL), ("40P01", Verdict.RETRY), ("57P01", Verdict.RETRY),
        ("42804", Verdict.ROWS), ("42846", Verdict.ROWS),
    ],
)  # fmt: skip
def test_what_errors_of_servers_mean(code: int | str, verdict: Verdict) -> None:
    """A row that a trigger, a view or a limit refuses would otherwise be tried again for ever."""
    for state in (None, "HY000"):
        assert verdict_of(sa.exc.DBAPIError("INSERT", {}, DriverError(code, state))) is verdict


@pytest.mark.parametrize(
    ("state", "verdict"), [("22023", Verdict.ROWS), ("45000", Verdict.ROWS), ("08S01", Verdict.RETRY)]
)
def test_of_a_code_of_mysql_that_is_not_known_the_state_counts(state: str, verdict: Verdict) -> None:
    assert verdict_of(sa.exc.OperationalError("INSERT", {}, DriverError(9999, state))) is verdict


@pytest.mark.parametrize(
    ("code", "away"),
    [
        (2003, True), (2013, True), (1040, True), (1053, True), (1213, True), (1064, False), (1146, False),
        ("08006", True), ("57P03", True), ("53300", True), ("40001", True), ("57014", False), ("42601", False),
    ],
)  # fmt: skip
def test_a_read_is_tried_again_only_if_the_server_is_away(code: int | str, away: bool) -> None:
    """A query with an error of syntax would otherwise be tried for two minutes."""
    for state in (None, "HY000"):
        assert is_away(sa.exc.DBAPIError("SELECT", {}, DriverError(code, state))) is away


@pytest.mark.parametrize(
    ("kind", "given", "verdict"),
    [
        (sa.exc.ProgrammingError, "nan can not be used with MySQL", Verdict.ROWS),
        (sa.exc.ProgrammingError, "cannot adapt type 'object' using placeholder '%s'", Verdict.ROWS),
        (sa.exc.ProgrammingError, "no such table: users", Verdict.FAIL),
        (sa.exc.DataError, 3988, Verdict.ROWS),
        (sa.exc.IntegrityError, 9999, Verdict.ROWS),
        (sa.exc.OperationalError, 9999, Verdict.RETRY),
    ],
)
def test_what_errors_of_drivers_mean(kind: Any, given: Any, verdict: Verdict) -> None:
    """A driver refuses a value by itself; of a code that is not known, the class of the error counts."""
    error = DriverError(given)
    error.sqlstate = None
    assert verdict_of(kind("INSERT", {}, error)) is verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('FATAL:  password authentication failed for user "me"', Verdict.FAIL),
        ('FATAL:  database "shpo" does not exist', Verdict.FAIL),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "me"', Verdict.FAIL),
        ("FATAL:  the database system is starting up", Verdict.RETRY),
        ("FATAL:  sorry, too many clients already", Verdict.RETRY),
        ("Connection refused", Verdict.RETRY),
    ],
)
def test_a_login_that_postgresql_refuses_is_not_tried_again(text: str, verdict: Verdict) -> None:
    """Errors of a login have no code in its driver, only the server's words."""
    error = DriverError(f"connection failed: {text}")
    error.sqlstate = None
    assert verdict_of(sa.exc.OperationalError("", {}, error)) is verdict


def test_fields_without_a_column_can_be_left_out(url: str) -> None:
    sink(url, ignore_unknown=True).write([{"id": 1, "name": "a", "more": 1}], None)
    sink(url, columns=("id", "name")).write([{"id": 2, "name": "b", "mail": "not written"}], None)
    assert stored(url, "SELECT id, name, mail FROM users") == [(1, "a", None), (2, "b", None)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "merge"}, "mode is 'merge'"),
        ({"mode": "insert", "key": "id"}, "uses no key"),
        ({"key": "id", "columns": ["name"]}, "columns leaves out id"),
        ({"url": "nonsense"}, "url must be the address"),
        ({"url": "oracle9://host/x"}, "the url is not valid"),
        ({"url": "sqlite://"}, "a database in memory ends with its connection"),
        ({"table": ""}, "it must be the name of a table"),
    ],
)
def test_arguments_are_checked_when_it_is_built(options: dict[str, Any], message: str, url: str) -> None:
    with pytest.raises(LocalError, match=message):
        WriteToSql(**{"url": url, "table": "users", **options})


DIGITS = "12345678901234567890.0123456789"
_UTC = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (sa.DateTime(), "2024-01-02T04:04:05+01:00", _UTC.replace(tzinfo=None)),
        (sa.DateTime(), 1704164645000, _UTC.replace(tzinfo=None)),
        (sa.DateTime(timezone=True), "2024-01-02T03:04:05", _UTC),
        (sa.Date(), "2024-01-02", dt.date(2024, 1, 2)),
        (sa.Date(), _UTC, dt.date(2024, 1, 2)),
        (sa.Time(), "03:04", dt.time(3, 4)),
        (sa.Numeric(10, 2), 0.1, Decimal("0.1")),
        (sa.Numeric(10, 2), "1.50", Decimal("1.50")),
        (sa.Float(), 1, 1.0),
        (sa.Boolean(), "TRUE", True),
        (sa.Boolean(), 0, False),
        (sa.Integer(), True, 1),
        (sa.BigInteger(), "12", 12),
        (sa.LargeBinary(), "aGk=", b"hi"),
        (sa.LargeBinary(), b"hi", b"hi"),
        (sa.String(), {"a": 1}, '{"a":1}'),
        (sa.String(), 12, "12"),
        (sa.JSON(), {"a": 1}, {"a": 1}),
        (sa.Numeric(30, 10), JsonNumber(DIGITS), Decimal(DIGITS)),
        (sa.Float(), JsonNumber(DIGITS), float(DIGITS)),
        (sa.BigInteger(), JsonNumber("9007199254740993.0"), 9007199254740993),
        (sa.String(), [JsonNumber(DIGITS)], f"[{DIGITS}]"),
        (sa.ARRAY(sa.Numeric), [[JsonNumber(DIGITS), 1, None]], [[Decimal(DIGITS), Decimal(1), None]]),
        (sa.ARRAY(sa.Numeric), "{1,2}", "{1,2}"),
        (sa.types.NullType(), JsonNumber(DIGITS), float(DIGITS)),
    ],
)
def test_values_become_those_of_the_column(kind: Any, value: Any, wanted: Any) -> None:
    found = converter_of(kind)(value)
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (sa.Integer(), 1.5), (sa.Integer(), "x"), (sa.Boolean(), 2), (sa.Numeric(), "NaN"), (sa.Numeric(), True),
        (sa.Integer(), "1_000"), (sa.Float(), "1_0"), (sa.Numeric(), "1_0"),
        (sa.DateTime(), True), (sa.Date(), "x"), (sa.LargeBinary(), "no base 64"), (sa.LargeBinary(), 7),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_errors(kind: Any, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        converter_of(kind)(value)


@pytest.mark.parametrize("partition_on", [None, "id"])
@pytest.mark.parametrize("query", ["users", "SELECT id, name FROM users WHERE name <> 'a:b'"])
def test_a_read_has_every_row(url: str, query: str, partition_on: str | None) -> None:
    rows = [{"id": number, "name": f"n{number}"} for number in range(-5, 40)]
    found = sink(url)
    found.write(rows, None)
    found.close()

    def check(read: list[Any]) -> None:
        assert sorted((row["id"], row["name"]) for row in read) == [(row["id"], row["name"]) for row in rows]

    with beam.Pipeline() as pipeline:
        read = pipeline | ReadFromSql(url, query, partition_on=partition_on, partitions=4)
        _ = read | beam.combiners.ToList() | beam.Map(check)


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("nobody", None, "no such table: nobody"),
        ("users", "name", "which is not a column of integers"),
        ("SELECT id, name, mail AS name FROM users", None, "has two columns name: rename one of them with AS"),
    ],
)
def test_a_read_that_cannot_be(url: str, query: str, column: str | None, message: str) -> None:
    sink(url).write([{"id": 1, "name": "a"}], None)
    with pytest.raises(Exception, match=message):
        with beam.Pipeline() as pipeline:
            _ = pipeline | ReadFromSql(url, query, partition_on=column)


def test_a_read_of_a_file_that_is_not_there_creates_none(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="there is no file"):
        ReadFromSql(f"sqlite:///{tmp_path}/none.db", "users")
    assert not list(tmp_path.iterdir())


def test_a_read_waits_for_a_database_that_is_locked_and_gives_up_in_the_end(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink(url).write([{"id": 1, "name": "a"}], None)
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Exception, match=r"gave up after 1 tries.*users of sqlite.*cannot be read.*locked"):
            read(f"{url}?timeout=0", Retry(give_up_after_s=0))

        def release() -> None:
            until(lambda: "it is tried again" in caplog.text, "a try that has failed")
            other.rollback()

        later = threading.Thread(target=release)
        later.start()
        read(f"{url}?timeout=0", Retry(first_wait_s=0.05))
        later.join()


def read(url: str, retry: Retry) -> None:
    def check(rows: list[Any]) -> None:
        assert [row["name"] for row in rows] == ["a"]

    with beam.Pipeline() as pipeline:
        _ = pipeline | ReadFromSql(url, "users", retry=retry) | beam.combiners.ToList() | beam.Map(check)


def test_numbers_that_no_float_holds_are_floats_only_in_columns_of_floats(url: str) -> None:
    with beam.Pipeline() as pipeline:
        body = b'{"id": 9007199254740993.0, "name": %s, "rate": %s, "more": [%s]}' % ((b"0.12345678901234567890",) * 3)
        _ = pipeline | beam.Create([body]) | WriteToSql(url, "users")
    wanted = (9007199254740993, "0.12345678901234567890", 0.12345678901234568, "[0.12345678901234567890]")
    assert stored(url, "SELECT id, name, rate, more FROM users") == [wanted]


def test_tombstones_delete_the_rows_of_their_keys(url: str) -> None:
    """In the order of the batch."""
    tombstone = Message(b"", keys=("2",), properties={TOMBSTONE: "true"})
    elements = [
        *({"id": number, "name": "a"} for number in range(1, 6)),
        tombstone, KafkaRecord(None, b"3"), {"id": 3, "name": "again"}, KafkaRecord(None, b"99"),
        message_of(KafkaRecord(None, b" 4")),  # whose key cannot be one of RocketMQ
    ]  # fmt: skip
    found = sink(url)
    assert found.write([found.convert(each) for each in elements], None) is None
    assert stored(url) == [(1, "a"), (3, "again"), (5, "a")]


@pytest.mark.parametrize(
    ("element", "options", "message"),
    [
        (KafkaRecord(None, b"x"), {}, "column id: invalid literal"),
        (KafkaRecord(None, b"\xff"), {}, "the key of a tombstone is not UTF-8"),
        (KafkaRecord(None, b"1"), {"mode": "insert"}, 'works only with mode="upsert"'),
        (Message(b"", keys=("1",)), {}, "the body is not JSON"),
    ],
)
def test_a_tombstone_that_can_delete_nothing_is_refused(
    element: Any, options: dict[str, Any], message: str, url: str
) -> None:
    found = sink(url, **options)

    def delete() -> None:
        outcome = found.write([found.convert(element)], None)
        assert outcome is not None
        raise outcome.refused[0]

    with pytest.raises((RowRefused, SerdeError), match=message):
        delete()


@pytest.mark.parametrize(("more", "wanted"), [("", "10"), ("?connect_timeout=3", "3")])
def test_a_postgresql_that_does_not_answer_is_not_waited_for_in_silence(more: str, wanted: str) -> None:
    pytest.importorskip("psycopg", reason="tables of PostgreSQL need the extra 'sql-databases'")
    engine = Database(f"postgresql://me@h/x{more}").engine()

    @sa.event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> None:
        raise OSError(f"waits {options['connect_timeout']} s")

    with pytest.raises(OSError, match=f"^waits {wanted} s$"):
        engine.raw_connection()
