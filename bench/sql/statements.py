"""The statements, the bodies that they read, and the filter by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

TABLES: Final = """
CREATE TABLE source (id STRING, kind STRING, data STRING, note STRING, n BIGINT) WITH ('topic' = 'source');
CREATE TABLE empty (id STRING, kind STRING, data STRING, note STRING, n BIGINT) WITH ('topic' = 'empty');
CREATE TABLE sink (id STRING, data BIGINT, kind STRING) WITH ('topic' = 'sink');
CREATE TABLE totals (kind STRING, n BIGINT, total BIGINT) WITH ('topic' = 'totals');
"""
FILTER: Final = """INSERT INTO sink SELECT id, CAST(data AS BIGINT), kind FROM {source}
WHERE CAST(data AS BIGINT) > 86 AND kind LIKE 'temp%'"""
GROUPS: Final = "INSERT INTO totals SELECT id, COUNT(*), SUM(n) FROM source GROUP BY id"
EIGHT: Final = (
    FILTER,
    "INSERT INTO sink SELECT id, CAST(data AS BIGINT), kind FROM {source} WHERE CAST(data AS BIGINT) < 10",
    "INSERT INTO sink SELECT UPPER(id), CAST(data AS BIGINT), kind FROM {source} WHERE id = 'device-007'",
    "INSERT INTO sink SELECT UPPER(id), n, 'high' FROM {source} WHERE kind LIKE 'hum%' AND CAST(data AS BIGINT) > 80",
    "INSERT INTO sink SELECT id, n, CASE WHEN CAST(data AS BIGINT) > 97 THEN 'alarm' ELSE 'warning' END FROM {source} "
    "WHERE CAST(data AS BIGINT) BETWEEN 95 AND 99",
    "INSERT INTO sink SELECT id, MOD(n, 1000), kind FROM {source} WHERE MOD(n, 1000) = 7",
    "INSERT INTO sink SELECT id, COUNT(*), 'n' FROM {source} GROUP BY id",
    "INSERT INTO sink SELECT kind, SUM(CAST(data AS BIGINT)), 'sum' FROM {source} WHERE id LIKE '%-01%' GROUP BY kind",
)


class Body(NamedTuple):
    """A record, as far as a fragment looks at it."""

    body: bytes


def bodies(count: int) -> list[bytes]:
    """About 150 bytes each; a tenth passes the filter."""
    drawn = random.Random(7)
    rows = (
        {
            "id": f"device-{drawn.randrange(50):03}",
            "kind": "temperature" if drawn.randrange(4) else "humidity",
            "data": str(drawn.randrange(100)),
            "note": "x" * 60,
            "n": n,
        }
        for n in range(count)
    )
    return [json.dumps(row).encode() for row in rows]


def filter_by_hand(batch: Sequence[Body]) -> list[Any]:
    found = []
    for record in batch:
        row = json.loads(record.body)
        data = row["data"]
        if data is not None and int(data) > 86 and row["kind"].startswith("temp"):
            out = {"id": row["id"], "data": int(data), "kind": row["kind"]}
            found.append(json.dumps(out, separators=(",", ":")).encode())
    return found
