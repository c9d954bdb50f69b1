"""The statements of a batch: the order of rows whose keys a collation can take as equal, and no more of it."""

from __future__ import annotations

import datetime as dt
import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.connect.sql.sink import statements_of

_EQUAL: dict[str, Callable[[str], str]] = {
    "exact": lambda text: text,
    "case": str.upper,
    "spaces": str.rstrip,
    "umlauts": lambda text: text.replace("ä", "ae"),
    "punctuation": lambda text: text.replace("-", ""),
    "letters": lambda text: text.upper().rstrip().replace("Ä", "AE").replace("-", ""),
}
"""Collations take some keys as equal, and none takes A as B."""


def applied(statements: list[Any], collate: Callable[[str], str], *, ignore: bool = False) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    for names, rows in statements:
        for row in rows:
            assert tuple(sorted(row)) == names
            key = collate(row["k"])
            if key not in table or not ignore:
                table.setdefault(key, {}).update({name: row[name] for name in names if name != "k"})
    return table


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "A", "a ", "b", "ä", "ae", "a-", "B"]), st.sampled_from(["x", "y", "xy"])),
        max_size=12,
    ),
    st.sampled_from(list(_EQUAL)),
    st.booleans(),
)
def test_a_batch_ends_as_its_rows_one_by_one(given_: list[tuple[str, str]], collation: str, ignore: bool) -> None:
    rows = [{"k": key, **dict.fromkeys(names, number)} for number, (key, names) in enumerate(given_)]
    one_by_one = [(tuple(sorted(row)), [row]) for row in rows]
    collate = _EQUAL[collation]
    found = statements_of(rows, ("k",), keep_first=ignore)
    assert applied(found, collate, ignore=ignore) == applied(one_by_one, collate, ignore=ignore)


@pytest.mark.parametrize(
    "keys",
    [[1, 2], ["a", "b"], [b"a", b"A"], [dt.date(2024, 1, 1), dt.date(2024, 1, 2)], ["Order-1", "order-2"]],
)
def test_rows_whose_keys_surely_differ_share_statements(keys: list[Any]) -> None:
    columns = itertools.cycle([{"x": 1}, {"x": 1, "y": 2}])
    rows = [{"k": key, **next(columns)} for key in [*keys] * 10]
    assert len(statements_of(rows, ("k",), keep_first=False)) == 2


@pytest.mark.parametrize(
    "keys", [["ß", "ss"], ["ä", "ae"], ["a", "A"], ["a", "a "], ["01", "1"], ["a0-1", "a1"], [1.0, 1.001],
             [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 400_000)], ["x\u200bx", "xx"], ["w", "v"]]
)  # fmt: skip
def test_rows_whose_keys_can_be_equal_keep_their_order(keys: list[Any]) -> None:
    first, second = keys
    other = {str: "b", float: 5.0, dt.datetime: dt.datetime(2020, 1, 1)}[type(first)]
    rows = [{"k": other, "x": 0}, {"k": first, "x": 1, "y": 1}, {"k": second, "x": 2}]
    found = [row["x"] for _, group in statements_of(rows, ("k",), keep_first=False) for row in group]
    assert found.index(1) < found.index(2)


def test_a_part_of_the_key_that_surely_differs_is_enough() -> None:
    rows = [{"k": "ä", "n": number, **({"x": 1} if number % 2 else {"y": 1})} for number in range(10)]
    assert len(statements_of(rows, ("k", "n"), keep_first=False)) == 2


@pytest.mark.parametrize(("mode", "wanted"), [("upsert", 3), ("ignore", 1)])
def test_a_table_that_ignores_case(mode: str, wanted: int, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")
    import apache_beam as beam

    from rmqio.connect import WriteToSql

    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, x INTEGER, y INTEGER)")
    rows = [{"k": "a", "x": 1}, {"k": "A", "x": 2}, {"k": "a", "x": 3}, {"k": "b", "x": 0}]
    rows += [{"k": "c", "x": 1, "y": 1}, {"k": "C", "x": wanted}] if mode == "upsert" else []
    with beam.Pipeline() as pipeline:
        write = WriteToSql(f"sqlite:///{tmp_path}/shop.db", "t", mode=mode, batches=True)
        _ = pipeline | beam.Create([rows]) | write
    found = dict(connection.execute("SELECT lower(k), x FROM t").fetchall())
    connection.close()
    assert found == {"a": wanted, "b": 0, **({"c": wanted} if mode == "upsert" else {})}


def test_keys_of_several_types_keep_their_order() -> None:
    """A column of integers takes 1 and '1' as one key."""
    rows: list[dict[str, Any]] = [{"id": 2, "a": 1}, {"id": "1", "b": 2, "a": 2}, {"id": 1, "a": 3}]
    statements = statements_of(rows, ("id",), keep_first=False)
    order = [row["id"] for _, some in statements for row in some if row["id"] != 2]
    assert order == ["1", 1]


def test_a_loose_column_keeps_the_order_of_all_its_keys() -> None:
    """An interval of '1 day' is '24 hours', lists have no hash, and equal times of two zones can be two keys."""
    zones = [dt.timezone(dt.timedelta(hours=hours)) for hours in (0, 1)]
    for first, second in (("1 day", "24 hours"), ([1], [1, 2]), (b"a", b"a\0")):
        rows = [{"k": second, "x": 0}, {"k": first, "x": 1, "y": 1}, {"k": second, "x": 2}]
        found = [row["x"] for _, some in statements_of(rows, ("k",), keep_first=False, loose=("k",)) for row in some]
        assert found == [1, 2], "the first row is replaced by the last one"
    times: list[dict[str, Any]] = [{"k": dt.time(11, tzinfo=zones[0])}, {"k": dt.time(12, tzinfo=zones[1])}]
    assert [row for _, some in statements_of(times, ("k",), keep_first=False, loose=("k",)) for row in some] == times
