"""Tables of a real PostgreSQL: every type, schemas, credentials, and what its errors look like."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("sqlalchemy", reason="tables of databases need the extra 'sql-databases'")

from rmqio.errors import LocalError
from rmqio.sql.lookup import dimensions
from rmqio.sql.planning.plan import LookupJoin
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import dimension_of
from rmqio.sql.scripts.script import Script
from tests.helpers.servers.postgresql import postgresql

pytestmark = pytest.mark.slow

COLUMNS = (
    "id INT, b BOOLEAN, l BIGINT, d DOUBLE, n DECIMAL(10, 2), s STRING, day DATE, t TIME(3), ts TIMESTAMP(6), "
    "z TIMESTAMP_LTZ(3), x BYTES, u STRING, j STRING, a ARRAY<INT>"
)
THEIRS = (
    "id int, b boolean, l bigint, d double precision, n numeric(10, 2), s text, day date, t time, ts timestamp, "
    "z timestamptz, x bytea, u uuid, j jsonb, a int[]"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A database with the table shop.lines, in which row 1 has a value in each column, and a role that reads it."""
    import psycopg

    row = (
        1, True, 1 << 40, 0.5, Decimal("1.50"), "text", dt.date(2024, 2, 29), dt.time(1, 2, 3, 500_000),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        b"\xff", "12345678-1234-5678-1234-567812345678", '{"k": [1]}', [1, None],
    )  # fmt: skip
    with postgresql() as found:
        with psycopg.connect(found) as connection:
            connection.execute("CREATE SCHEMA shop")
            connection.execute(f"CREATE TABLE shop.lines ({THEIRS}, unused text)")
            connection.execute(f"INSERT INTO shop.lines VALUES ({', '.join(['%s'] * 14)})", row)
            connection.execute("INSERT INTO shop.lines (id) SELECT n FROM generate_series(2, 3000) AS n")
            connection.execute("CREATE ROLE reader LOGIN PASSWORD 'p@ss/word'")
            connection.execute("GRANT USAGE ON SCHEMA shop TO reader")
            connection.execute("GRANT SELECT ON shop.lines TO reader")
        yield found


def looked_up(url: str, columns: str, key: Any, table: str, more: str = "") -> Any:
    script = Script()
    names = ", ".join(f"c.{each.split()[0]}" for each in columns.split(", ") if each[0].isalpha())
    script.run(
        "CREATE TABLE o (id INT) WITH ('topic' = 'o');"
        f"CREATE TABLE c ({columns}) WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{table}'{more});"
        f"EXPLAIN SELECT {names} FROM o JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON o.id = c.id;"
    )
    relation: Any = script.explained[0]
    while not isinstance(relation, LookupJoin):
        (relation,) = relation.inputs()
    lease = dimensions.acquire(dimension_of(relation.dimension, (0,), "job", Connection().of))
    try:
        return list(lease.getter()(key))
    finally:
        dimensions.close_all()


def test_every_type_of_postgresql(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = url.replace("postgres@", "")
    monkeypatch.setenv("PW_OF_TEST", "p@ss/word")
    (tmp_path / "password").write_text("p@ss/word\n")
    (tmp_path / "password").chmod(0o600)
    ways = "'password' = 'p@ss/word'", "'password_env' = 'PW_OF_TEST'", f"'password_file' = '{tmp_path}/password'"
    found, *others = (looked_up(ours, COLUMNS, 1, "shop.lines", f", 'username' = 'reader', {each}") for each in ways)
    assert others == [found, found]
    day = 19_782
    assert found == [(
        1, True, 1 << 40, 0.5, Decimal("1.50"), "text", day, 3_723_500_000, day * 86_400_000_000 + 3_723_000_004, 0,
        b"\xff", "12345678-1234-5678-1234-567812345678", '{"k":[1]}', [1, None],
    )]  # fmt: skip
    assert looked_up(url, COLUMNS, 2999, "shop.lines") == [(2999, *[None] * 13)]


def test_errors_name_the_table_and_no_password(url: str) -> None:
    password = ", 'password' = 'secret'"
    for table, columns, wanted in (
        ("shop.nothing", "id INT", "does not exist"),
        ("shop.lines", "id INT, nothing INT", "nothing"),
    ):
        with pytest.raises(
            LocalError, match=rf"the dimension table c cannot be loaded: table {table} of postgresql:"
        ) as caught:
            looked_up(url, columns, 1, table, password)
        assert wanted in str(caught.value)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(LocalError, match="cannot be read: "):
        looked_up("postgresql://me@127.0.0.1:1/x", "id INT", 1, "t", password)
    with pytest.raises(
        LocalError, match=r"shop\.lines of postgresql:.*, row 1: column s: 'text' is not a whole number"
    ):
        looked_up(url, "id INT, s INT", 1, "shop.lines")
