"""Tables of real databases: MariaDB and PostgreSQL, with every type, in ranges that are read at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
pytest.importorskip("sqlalchemy", reason="tables of databases need the extra 'sql-databases'")

import sqlalchemy

from rmqio.enrich import Table
from rmqio.enrich.store import Wanted, load
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError
from tests.helpers.servers.mariadb import mariadb
from tests.helpers.servers.postgresql import postgresql

pytestmark = pytest.mark.slow

DRIVERS = {"mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg"}
KINDS = {
    "mysql": "id BIGINT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12, 2), at DATETIME(6), day DATE, data BLOB, "
    "f DOUBLE",
    "postgresql": "id BIGINT PRIMARY KEY, name TEXT, price NUMERIC(12, 2), at TIMESTAMP, day DATE, data BYTEA, "
    "f FLOAT8",
}
ROWS: list[tuple[Any, ...]] = [
    (n, None if n % 7 == 0 else f"Name {n} ä%:x", Decimal(n) / 4, dt.datetime(2024, 1, 1, 0, 0, 0, n % 10**6),
     dt.date(2024, 1, 1 + n % 28), bytes([n % 256]), n / 3)
    for n in range(-500, 50_000, 7)
]  # fmt: skip


@pytest.fixture(scope="module", params=["mysql", "postgresql"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with (mariadb if request.param == "mysql" else postgresql)() as found:
        scheme, _, rest = found.partition(":")
        engine = sqlalchemy.create_engine(f"{DRIVERS[scheme]}:{rest}")
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"CREATE TABLE users ({KINDS[scheme]})"))
            connection.execute(
                sqlalchemy.text("INSERT INTO users VALUES (:id, :name, :price, :at, :day, :data, :f)"),
                [dict(zip(("id", "name", "price", "at", "day", "data", "f"), row, strict=True)) for row in ROWS],
            )
        engine.dispose()
        yield found


def loaded(table: Table, *keys: str, columns: tuple[str, ...] | None = None) -> Any:
    return load(Wanted(table, Spec(keys, columns)), newer_than=0)[1]


@pytest.mark.parametrize("partition_on", [None, "id"])
def test_every_row_and_type_of_a_database(url: str, partition_on: str | None, tmp_path: Path) -> None:
    table = loaded(Table.from_sql(url, "users", partition_on=partition_on, cache_dir=str(tmp_path)), "id")
    assert table.get([row[0] for row in ROWS]) == [row[1:] for row in ROWS]
    assert len(table) == len(ROWS)


def test_a_query_with_a_condition_and_a_colon(url: str, tmp_path: Path) -> None:
    query = "SELECT id, name FROM users WHERE name LIKE '%:x' AND id < 100"
    source = Table.from_sql(url, query, partition_on="id", partitions=3, cache_dir=str(tmp_path))
    table = loaded(source, "name", columns=("id",))
    wanted = {row[1]: (row[0],) for row in ROWS if row[1] is not None and row[0] < 100}
    assert dict(table.rows()) == wanted


@pytest.mark.parametrize(("duplicates", "wanted"), [("first", "DESC"), ("last", "ASC")])
def test_the_order_of_the_query_says_which_row_counts(url: str, duplicates: str, wanted: str, tmp_path: Path) -> None:
    newest = {row[4]: (row[0],) for row in ROWS}  # by day, the row with the greatest id
    query = f"SELECT day, name, id FROM users ORDER BY id {wanted}"
    table = Table.from_sql(url, query, cache_dir=str(tmp_path))
    assert dict(load(Wanted(table, Spec(("day",), ("id",), duplicates)), newer_than=0)[1].rows()) == newest
    in_ranges = Table.from_sql(url, query, partition_on="id", cache_dir=str(tmp_path))
    with pytest.raises(LocalError, match="needs an order, and partition_on reads ranges at once"):
        Wanted(in_ranges, Spec(("day",), ("id",), duplicates))


@pytest.mark.parametrize(
    ("query", "columns", "message"),
    [
        ("userz", None, "userz"),
        ("users", ("nmae",), "no column nmae; did you mean name"),
    ],
)
def test_what_cannot_be_read_names_the_reason(
    url: str, query: str, columns: tuple[str, ...] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(LocalError, match=message):
        loaded(Table.from_sql(url, query, cache_dir=str(tmp_path)), "id", columns=columns)


SLOW = {
    "mysql": ("read_timeout=1", "SELECT id FROM users WHERE SLEEP(60) = 0", "timed out"),
    "postgresql": ("options=-c%20statement_timeout%3D1000", "SELECT id FROM users, pg_sleep(60)", "statement timeout"),
}
"""The limits that docs/enrich/sources.md names."""


@pytest.mark.timeout(50)
def test_a_limit_of_the_driver_ends_a_query_that_hangs(url: str, tmp_path: Path) -> None:
    limit, query, reason = SLOW[url.partition(":")[0]]
    source = Table.from_sql(f"{url}{'&' if '?' in url else '?'}{limit}", query, cache_dir=str(tmp_path))
    with pytest.raises(LocalError, match=f"cannot be read: .*{reason}"):
        loaded(source, "id")


def test_a_server_that_is_away_is_an_error_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_OF_TEST", "secret")
    url = "mysql://me@127.0.0.1:1/shop"
    table = Table.from_sql(url, "users", password_env="PASSWORD_OF_TEST", cache_dir=str(tmp_path))
    with pytest.raises(LocalError, match="cannot be read") as caught:
        loaded(table, "id")
    assert "secret" not in f"{caught.value} {table!r}"
