"""Statements of a dimension table, its rows, and files of them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

ORDERS = "CREATE TABLE t (id INT, customer INT, amount INT, proctime AS PROCTIME()) WITH ('topic' = 't');"
SINK = "CREATE TABLE sink (id INT, name STRING) WITH ('topic' = 'sink');"
CUSTOMERS = [(1, "Ann", "gold"), (2, "Bob", None), (3, "Cy", "silver"), (3, "Cyd", "gold"), (None, "Nil", "gold")]
TOPIC = (
    "CREATE TABLE customers (id INT, name STRING, level STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('topic' = 'u'{});"
)
LOOK_UP = (
    "INSERT INTO sink SELECT o.id, c.name FROM t AS o LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c "
    "ON o.customer = c.id;"
)


def customers(folder: Path, kind: str, more: str = "") -> str:
    """Returns the table of customers as files of a format, or in a database."""
    path = folder / f"customers.{kind}"
    columns = "id INT, name STRING, level STRING"
    match kind:
        case "csv":
            path.write_text("\n".join(",".join("" if v is None else str(v) for v in row) for row in CUSTOMERS) + "\n")
            more = f", 'csv.null-literal' = ''{more}"
        case "json":
            path.write_text(
                "\n".join(json.dumps(dict(zip(("id", "name", "level"), row, strict=True))) for row in CUSTOMERS)
            )
        case "parquet":
            pa = pytest.importorskip("pyarrow")
            import pyarrow.parquet as pq

            made = [dict(zip(("id", "name", "level"), row, strict=True)) for row in CUSTOMERS]
            pq.write_table(pa.Table.from_pylist(made), path)
        case "sqlite":
            pytest.importorskip("sqlalchemy")
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE customers (id INT, name TEXT, level TEXT)")
                connection.executemany("INSERT INTO customers VALUES (?, ?, ?)", CUSTOMERS)
            connection.close()
            return (
                f"CREATE TABLE customers ({columns}) WITH ('connector' = 'jdbc', 'url' = 'sqlite:///{path}', "
                f"'table-name' = 'customers'{more});"
            )
    return (
        f"CREATE TABLE customers ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{kind}'"
        f"{more});"
    )


def customer(id: Any, name: str, level: str | None = None) -> dict[str, Any]:
    return {"id": id, "name": name, "level": level}
