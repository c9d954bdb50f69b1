"""`rmqio.pyspark.enrich` adds columns to a DataFrame, in the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="plain PySpark needs the extra 'spark'")
import pyarrow as pa
from pyspark.sql import SparkSession

from rmqio.enrich import Table
from rmqio.errors import LocalError
from rmqio.pyspark import enrich


def test_a_frame_gets_columns(spark: SparkSession, tmp_path: Path) -> None:
    users = pa.table({"id": [1, 2, 2], "tier": ["gold", None, "tin"], "tags": [["a"], [], None]})
    table = Table.from_arrow(users, cache_dir=str(tmp_path))
    frame = spark.range(4).withColumnRenamed("id", "user").repartition(2)
    columns = {"tier": "string", "tags": "array<string>"}
    first = enrich(frame, table, {"user": "id"}, columns, duplicates="first").collect()
    assert sorted(map(tuple, first), key=str) == [(0, None, None), (1, "gold", ["a"]), (2, None, []), (3, None, None)]
    every = enrich(frame, table, {"user": "id"}, {"tier": "string"}, how="inner", duplicates="all").collect()
    assert sorted(map(tuple, every), key=str) == [(1, "gold"), (2, "tin"), (2, None)]
    with pytest.raises(LocalError, match="no column usr; did you mean user"):
        enrich(frame, table, {"usr": "id"}, columns)
