"""Rows of a database: what a column of SQLite can have, whose values have types of their own."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
pytest.importorskip("sqlalchemy", reason="tables of databases need the extra 'sql-databases'")

from rmqio.enrich.sources.sql import Query
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
