"""`WriteToSql` and `ReadFromSql` on MariaDB and PostgreSQL: types, errors of single rows, a server that is killed."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import apache_beam as beam
import pytest

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

import sqlalchemy

from rmqio.connect import Batching, ReadFromSql, Retry, WriteToSql
from rmqio.connect.sql.engine import Database
from tests.helpers.servers.database import Server
from tests.helpers.servers.mariadb import mariadb_server
from tests.helpers.servers.postgresql import postgresql_server

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


def test_a_server_killed_midway_loses_and_doubles_nothing(shop: Shop) -> None:
    """The server is killed while rows are written, and starts again 1 s later. The write goes on by itself."""
    users(shop)
    rows = [{"id": number, "name": f"n{number}"} for number in range(2500)]
    killed = threading.Event()

    def kill() -> None:
        while (shop.run("SELECT count(*) FROM users")[0][0]) < 500:
            pass
        shop.server.kill()
        killed.set()
        threading.Event().wait(1)
        shop.server.start()

    killer = threading.Thread(target=kill)
    killer.start()
    pipeline = beam.Pipeline()
    write = WriteToSql(shop.url, "users", batching=Batching(max_rows=20), retry=Retry(max_wait_s=0.5))
    _ = pipeline | beam.Create(rows, reshuffle=False) | write
    result = pipeline.run()
    result.wait_until_finish()
    killer.join()
    counters = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    assert killed.is_set()
    assert counters["row_write_retries"] > 0
    assert counters["rows_written"] == 2500
    assert shop.run("SELECT id, name FROM users ORDER BY id") == [(row["id"], row["name"]) for row in rows]
