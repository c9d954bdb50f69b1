"""Rows on their way from a task to Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.worker.rows import Abandoned, RowQueue, RowWriter


def test_a_writer_stops_when_nobody_reads() -> None:
    rows = RowQueue()
    writer = RowWriter(rows)
    rows.abandon()
    writer.write(0, 0, None, b"x")
    with pytest.raises(Abandoned):
        writer.flush()
    rows.end()  # does not hang


def test_rows_keep_their_order_and_their_columns() -> None:
    rows = RowQueue()
    writer = RowWriter(rows)
    writer.write(1, 2, b"k", b"v")
    writer.write(-1, 0, None, b"")
    writer.flush()
    rows.end()
    (batch,) = rows
    assert batch.to_pydict() == {"channel": [1, -1], "bucket": [2, 0], "key": [b"k", None], "value": [b"v", b""]}
