"""Plain PySpark's `valueFormat=avro` beside the same read without it: messages per second, and ratio.

python -m bench.avro.pyspark [--messages 1000000] [--repeats 5]

Both sides read all columns into Spark's `noop` sink, in one session and by turns. The time of the same read of an empty
topic is subtracted from each run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from bench.avro.__main__ import FLAT, NESTED, flat, nested
from bench.avro.read import fill
from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio.local import LocalRocketMQ

_HEAD: Final = ("values", "with Avro/s", "without/s", "ratio", "target")
_TARGET: Final = "0.85"
_QUEUES: Final = 4


def lines_of(
    session: SparkSession, name_server: str, name: str, schema: Any, make: Any, count: int, repeats: int
) -> list[str]:
    """The rates of one schema. Raises `UnequalWork`."""
    topic, empty = f"avro-{name}", f"avro-{name}-empty"
    fill(name_server, topic, schema, make, count)

    def frame(from_topic: str, **more: str) -> DataFrame:
        options = {"nameServer": name_server, "subscribe": from_topic, "startingOffsets": "earliest", **more}
        return session.read.format("rocketmq").options(**options).load()

    def seconds(found: DataFrame) -> float:
        began = time.perf_counter()
        found.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    typed = {"valueFormat": "avro", "valueSchema": json.dumps(schema)}
    ids = frame(topic, **typed).selectExpr("count(value.id)", "sum(value.id)").collect()[0]
    if tuple(ids) != (count, count * (count - 1) // 2):
        raise UnequalWork(f"{name}: {ids} were read of {count} values")
    sides = [frame(topic, **typed), frame(topic)]
    start_up = [min(seconds(frame(empty, **more)) for _ in range(3)) for more in (typed, {})]
    rates = []
    for number in range(repeats + 1):
        order = (0, 1) if number % 2 else (1, 0)
        took = {side: seconds(sides[side]) - start_up[side] for side in order}
        if number:  # the first is to warm up
            rates.append([count / took[side] for side in (0, 1)])
    ratios = sorted(one / other for one, other in rates)
    mine, others = (statistics.median(side) for side in zip(*rates, strict=True))
    cells = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
    return [name, f"{mine:,.0f}", f"{others:,.0f}", cells, _TARGET]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.avro.pyspark", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        with LocalRocketMQ() as broker:
            for name in ("flat", "nested"):
                for topic in (f"avro-{name}", f"avro-{name}-empty"):
                    broker.create_topic(topic, queues=_QUEUES)
            sizes = given.messages, given.repeats
            lines = [
                lines_of(session, broker.name_server, "flat", FLAT, flat, *sizes),
                lines_of(session, broker.name_server, "nested", NESTED, nested, *sizes),
            ]
    finally:
        session.stop()
    print(f"Machine: {machine_text()}. {given.messages:,} messages, {given.repeats} repeats.")
    print(aligned([_HEAD, *lines], left={0}))


if __name__ == "__main__":
    # Under its own name, so that the runner that fills the topics finds this module's imports and not copies.
    from bench.avro import pyspark

    pyspark.main()
