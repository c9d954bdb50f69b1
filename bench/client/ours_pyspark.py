"""`spark.read.format("rocketmq")` on one core of local Spark. Runs in a worker process; one session serves all runs.

The clock covers the whole query: planning, reading in Python workers, and Spark's sums over what they gave. Starting
Spark is not timed.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.client.ours import Sums
from bench.common.tally import offsets_sum
from bench.spark.side import prepare, spark_settings
from rmqio.pyspark import register

_COLUMNS: Final = "queueId int, queueOffset bigint, body binary"
_sessions: list[SparkSession] = []
_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Spark's, kept until the process ends."""


def _session() -> SparkSession:
    if not _sessions:
        prepare()
        folder = tempfile.TemporaryDirectory(prefix="rmqio-bench-spark-")
        settings = spark_settings(Path(folder.name)) | {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}
        builder = SparkSession.builder.appName("bench").config("spark.ui.showConsoleProgress", "false")
        for name, value in settings.items():
            builder = builder.config(name, value)
        _sessions.append(builder.getOrCreate())
        register(_sessions[0])
        _folders.append(folder)
    return _sessions[0]


def read(name_server: str, topic: str, checked: bool) -> dict[str, Any]:
    """All of a topic, three columns: messages, bytes and offsets summed up; with `checked` the bodies' CRCs too."""
    session = _session()
    started = time.perf_counter()
    frame = session.read.format("rocketmq").schema(_COLUMNS).options(nameServer=name_server, subscribe=topic).load()
    # As the broker stores it: the top bit is cleared
    crcs = F.sum(F.crc32("body").bitwiseAND((1 << 31) - 1)) if checked else F.lit(0)
    sums = frame.groupBy("queueId").agg(F.count("*"), F.sum(F.length("body")), F.sum("queueOffset"), crcs).collect()
    seconds = time.perf_counter() - started
    total = Sums()
    for queue_id, count, size, offsets, crc in sums:
        total.count += count
        total.bytes += size
        total.offsets += offsets_sum(queue_id, offsets + count)
        total.crcs += crc
    answer = total.answer(seconds)
    return answer if checked else answer | {"crcs": None}
