"""Rows of a database: what a column of SQLite can have, whose values have types of their own."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
pytest.importorskip("sqlalchemy", reason="tables of databases need the extra 'sql-databases'")

import pyarrow as pa

from rmqio.enrich import Table, sql_source
from rmqio.enrich.lookups import found_columns
from rmqio.enrich.refresh import Schedule, acquire
from rmqio.enrich.sql_source import Query
from rmqio.enrich.store import Wanted, load
from rmqio.enrich.table.kinds import cut_at
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError


@pytest.mark.parametrize("values", [(1, "x"), (1 << 62, 2.5), (b"x", 1)])
def test_a_column_of_several_types_is_named(tmp_path: Path, values: tuple[Any, ...]) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (k TEXT, v)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(str(each), each) for each in values])
        connection.commit()
    source = Query(f"sqlite:///{tmp_path / 'a.db'}", "t", None, 1, None, None)
    with pytest.raises(LocalError, match=r"the column v has values of several types: .*; cast it in the query"):
        list(source.batches(None))


@pytest.mark.parametrize(("partition_on", "row"), [(None, "row 3 "), ("k", "the row with k = 3 ")])
def test_a_float_in_a_column_of_integers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_on: str | None, row: str
) -> None:
    """The first rows are integers. Arrow would cut 2.5 to 2 without a word."""
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (k INTEGER, v)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, 1), (2, 2), (3, 2.5)])
        connection.commit()
    source = Query(f"sqlite:///{tmp_path / 'a.db'}", "t", partition_on, 1, None, None)
    monkeypatch.setattr(sql_source, "_ROWS", 2)  # the types are those of the first rows
    reason = rf"t of sqlite:.*: {row}has the float 2.5 in the column v, which int64 would cut; cast it in the query"
    with pytest.raises(LocalError, match=reason):
        list(source.batches(None))


@pytest.mark.parametrize(("value", "is_cut"), [(1.5, True), (2.0, True), (Decimal("1.5"), True), (Decimal(2), False)])
def test_what_arrow_would_cut(value: Any, is_cut: bool) -> None:
    assert cut_at([1, None, value], pa.int64()) == (2 if is_cut else None)
    assert cut_at([value], pa.float64()) is cut_at([value], pa.decimal128(10, 2)) is None


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("partition_on", [None, "k"])
def test_a_table_without_rows_has_no_row_for_keys_of_any_type(
    tmp_path: Path, partition_on: str | None, plain: bool
) -> None:
    """The types are those of the rows: without any, a key of another type is not an error."""
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (k INTEGER, l TEXT, v INTEGER)")
    table = Table.from_sql(f"sqlite:///{tmp_path / 'a.db'}", "t", partition_on=partition_on, cache_dir=str(tmp_path))
    for keys, sought in ((("k",), [1, "1", None]), (("k", "l"), [(1, "a"), ("1", 2), None])):
        pointer, _ = load(Wanted(table, Spec(keys, ("v",))), newer_than=0)
        made = MappedTable(Wanted(table, Spec(keys, ("v",))).store().folder / pointer.version, plain=plain)
        assert made.get(sought) == [made.get_one(each) for each in sought] == [None] * 3
        assert made.select(["v"]).get(sought, many=True) == [None] * 3
        assert found_columns(made, [pa.array([1])] * len(keys)) is None
        assert list(made.rows()) == []


@pytest.mark.parametrize("partition_on", [None, "k"])
def test_a_query_can_end_with_a_comment(tmp_path: Path, partition_on: str | None) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (k INTEGER)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
    source = Query(f"sqlite:///{tmp_path / 'a.db'}", "SELECT k FROM t -- all of them", partition_on, 2, None, None)
    assert [each.to_pydict() for each in source.batches(None)] == [{"k": [1]}]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            Table.from_sql("foo::", "SELECT 1"),
            "the table (SELECT 1) of foo:: cannot be loaded: its URL is not valid; it must be like mysql:",
        ),
        (
            Table.from_sql("sqlite:////nowhere/a.db", f"SELECT k FROM t WHERE {'a' * 40}"),
            f"the table (SELECT k FROM t WHERE {'a' * 18}...) of sqlite:////nowhere/a.db cannot be loaded: there is",
        ),
        (
            Table.from_arrow(pa.table({"k": [1, 1, 2], "v": [1, 2, 3]})),
            "the table from_arrow (3 rows) cannot be loaded: the key k = 1 has several rows",
        ),
    ],
)
def test_a_source_is_named_once(table: Table, message: str, tmp_path: Path) -> None:
    wanted = Wanted(replace(table, cache_dir=str(tmp_path)), Spec(("k",)))
    with pytest.raises(LocalError) as caught:
        acquire(wanted, Schedule()).rows()
    assert str(caught.value).startswith(message)
