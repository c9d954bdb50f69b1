"""The rows of the benchmark: a key of text, and four columns. They follow from their number, so all can be checked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rmqio.enrich import Table
from rmqio.enrich.store import Wanted
from rmqio.enrich.table.rows import Spec

Row = tuple[str, str, int, str]
TIERS: Final = ("bronze", "silver", "gold", "platinum")
PART: Final = 100_000
_MISSING: Final = 20
"""One key in so many is not in the table."""


def key_of(n: int) -> str:
    """Returns the key of a row."""
    return f"user-{n * 2654435761 % (1 << 40):013d}"


def row_of(n: int) -> Row:
    """Returns the row of a number."""
    return TIERS[n % 4], f"region-{n % 300:03d}", n * 7, f"name of {n}"


def make(path: Path, rows: int) -> None:
    """Writes the source."""
    names, kinds = ("id", "tier", "region", "score", "name"), (pa.string(),) * 3 + (pa.int64(), pa.string())
    schema = pa.schema([*zip(names, kinds, strict=True)])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, PART):
            numbers = range(start, min(start + PART, rows))
            columns = list(zip(*map(row_of, numbers), strict=True))
            arrays = [
                pa.array(each, field.type)
                for each, field in zip([list(map(key_of, numbers)), *columns], schema, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def asked(rng: random.Random, rows: int, count: int) -> tuple[list[str], list[Row | None]]:
    """Returns random keys, and the rows that a look-up must return for them: some keys have none."""
    numbers = [rng.randrange(rows) + (rows if place % _MISSING == 0 else 0) for place in range(count)]
    return [key_of(n) for n in numbers], [row_of(n) if n < rows else None for n in numbers]


def wanted(folder: Path) -> Wanted:
    """Returns the table of the source in a folder."""
    table = Table.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"))
    return Wanted(table, Spec(("id",)))
