"""JSON and times of databases travel as messages and come back as they were. tests/integration/connect has servers."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

import apache_beam as beam
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from rmqio.connect import ReadFromSql, WriteToSql
from rmqio.connect.copying.job import ToMessage
from rmqio.connect.sql.columns import converter_of
from rmqio.connect.sql.read import interval_loader, json_columns


def test_a_column_of_json_travels_as_json_and_comes_back_as_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'json.db'}"
    documents = ['{"a": [1, "x", null]}', '"text"', "[]", "1.5", "true", '"{}"', None, "no json"]
    connection = sqlite3.connect(tmp_path / "json.db")
    for each in ("source", "target"):
        connection.execute(f"CREATE TABLE {each} (id INTEGER PRIMARY KEY, doc JSON)")
    connection.executemany("INSERT INTO source VALUES (?, ?)", list(enumerate(documents)))
    connection.commit()
    connection.close()

    with beam.Pipeline() as pipeline:
        bodies = pipeline | ReadFromSql(url, "source") | beam.Map(lambda row: ToMessage(None)(row).body)
        _ = bodies | WriteToSql(url, "target")

    with contextlib.closing(sqlite3.connect(tmp_path / "json.db")) as connection:
        copied = connection.execute("SELECT doc FROM target ORDER BY id").fetchall()
    found = [None if each is None else json.loads(str(each)) for (each,) in copied]  # SQLite makes a number of '1.5'
    assert found == [{"a": [1, "x", None]}, "text", [], 1.5, True, "{}", None, "no json"]


def test_mysql_says_which_columns_are_json() -> None:
    engine = sa.create_mock_engine("mysql+pymysql://", executor=lambda statement: None)
    description = [("id", 3, None), ("doc", 245, None), ("name", 253, None)]
    assert json_columns(engine, "SELECT id, doc, name FROM t", description) == {"doc"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("9:05:00", dt.time(9, 5)),
        ("09:05", dt.time(9, 5)),
        (dt.timedelta(hours=9, minutes=5, microseconds=1), dt.time(9, 5, 0, 1)),
        ("9:05:00.25", dt.time(9, 5, 0, 250_000)),
        ("-01:00:00", "-01:00:00 is no time of day, from 00:00 to 24:00; a TIME of MySQL has others"),
        ("1 day, 2:00:00", "26:00:00 is no time of day, from 00:00 to 24:00; a TIME of MySQL has others"),
        (5, "5 is not a time, such as 09:05:00"),
        ("soon", "'soon' is not a time, such as 09:05:00"),
    ],
    ids=str,
)
def test_a_time_of_mysql_becomes_a_time_of_day_or_is_refused(given: Any, expected: Any) -> None:
    convert = converter_of(sa.Time())
    if isinstance(expected, dt.time):
        assert convert(given) == expected
    else:
        with pytest.raises(ValueError, match=f"^{expected}$"):
            convert(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("9:05:00", "09:05:00"),
        ("-1 day, 22:30:00", "-01:30:00"),  # as Python writes it
        ("1 day, 2:00:00", "26:00:00"),
        (dt.timedelta(hours=-1, minutes=-30), "-01:30:00"),
        (dt.time(9, 5, 0, 1), "09:05:00.000001"),
        ("-838:59:59.5", "-838:59:59.500000"),
    ],
    ids=str,
)
def test_a_column_of_mysql_takes_every_time(given: Any, expected: str) -> None:
    assert converter_of(mysql.TIME())(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2 mons", "2 mons"),
        ("-1 years -2 mons +3 days -04:05:06.7", "-1 years -2 mons +3 days -04:05:06.7"),
        ("infinity", "infinity"),
        ("2000000000 days", "2000000000 days"),
        ("P1Y", "P1Y"),  # with another IntervalStyle
        ("-1 days +02:03:04.5", dt.timedelta(days=-1, hours=2, minutes=3, seconds=4.5)),
        ("60 days", dt.timedelta(days=60)),
        ("00:00:00", dt.timedelta(0)),
    ],
)
def test_an_interval_of_postgresql_is_a_timedelta_or_its_own_text(
    given: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg", reason="tables of PostgreSQL need the extra 'sql-databases'")
    monkeypatch.setattr("psycopg.types.datetime._get_intervalstyle", lambda connection: b"postgres")  # the server's
    found = interval_loader()(1186).load(given.encode())
    assert found == expected
    if found == given:
        assert json.loads(ToMessage(None)({"i": found}).body) == {"i": given}
        assert converter_of(postgresql.INTERVAL())(found) == given
