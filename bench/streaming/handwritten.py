"""The same counts as a PySpark user writes them: Spark's own windows, on the format `rocketmq`.

python -m bench.streaming.handwritten NAME_SERVER SOURCE SINK CHECKPOINT NAME=VALUE...
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.streaming.orders import WINDOW_S
from rmqio.pyspark import register


def main(name_server: str, source: str, sink: str, checkpoint: str, per_trigger: str, *settings: str) -> None:
    builder = SparkSession.builder.appName("bench")
    for name, _, value in (each.partition("=") for each in settings):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    at = {"nameServer": name_server}
    records = session.readStream.format("rocketmq").schema("body binary").options(**at, subscribe=source)
    parts = F.split(F.col("body").cast("string"), "\\|")
    orders = (
        records.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_trigger)
        .load()
        .select(parts[0].alias("key"), F.timestamp_millis(parts[1].cast("bigint")).alias("time"))
    )
    totals = orders.withWatermark("time", "5 seconds").groupBy(F.window("time", f"{WINDOW_S} seconds"), "key").count()
    start = F.unix_millis(F.col("window.start")).alias("start")
    bodies = totals.select(F.to_json(F.struct("key", start, "count")).cast("binary").alias("body"))
    sent = bodies.writeStream.format("rocketmq").options(**at, topic=sink, checkpointLocation=checkpoint)
    sent.outputMode("append").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
