"""`rmqio.pyspark.enrich` adds columns to a DataFrame, in the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="plain PySpark needs the extra 'spark'")
import pyarrow as pa
from pyspark.errors import PythonException
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
    with pytest.raises(PythonException, match="column tier of the table is string, which does not fit"):
        enrich(frame, table, {"user": "id"}, {"tier": "int"}, duplicates="first").collect()
    with pytest.raises(LocalError, match="the type of tier is 'strng', which is not one of Spark's"):
        enrich(frame, table, {"user": "id"}, {"tier": "strng"})
    with pytest.raises(LocalError, match=r"columns is \['tier'\]; it must be a dict"):
        enrich(frame, table, {"user": "id"}, ["tier"])  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="no column usr; did you mean user"):
        enrich(frame, table, {"usr": "id"}, columns)
    with pytest.raises(LocalError, match="the frame has 2 columns user, which is in the key: drop or rename all but"):
        enrich(frame.join(frame.alias("other"), frame.user == frame.user), table, {"user": "id"}, columns)
    with pytest.raises(LocalError, match="key names a field twice: user, user; name each once"):
        enrich(frame, table, ["user", "user"], columns)
    with pytest.raises(LocalError, match="key names a column of the table twice: id, id; name each once"):
        enrich(frame.withColumn("other", frame.user), table, {"user": "id", "other": "id"}, columns)
