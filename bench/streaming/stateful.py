"""Counts by key in state, as a Beam pipeline and by hand with Spark's transformWithState, which keeps a state per key.

python -m bench.streaming.stateful beam NAME_SERVER SOURCE SINK COUNT OPTION...
python -m bench.streaming.stateful hand NAME_SERVER SOURCE SINK COUNT CHECKPOINT NAME=VALUE...

Either sends a key to the sink when it has been seen COUNT times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from bench.streaming.windowed import key_of
from rmqio import Message, ReadFromRocketMQ, StartFrom, WriteToRocketMQ
from rmqio.pyspark import register
from rmqio.runners import options
from rmqio.start import StopAt

PER_TRIGGER: Final = 200_000


class Count(beam.DoFn):
    """Counts the values of a key."""

    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted

    def process(self, element: tuple[str, int], count: Any = beam.DoFn.StateParam(COUNT)) -> Iterator[Message]:
        now = (count.read() or 0) + 1
        count.write(now)
        if now == self._wanted:
            yield Message(element[0].encode())


class CountRows(StatefulProcessor):
    """The same for Spark."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self._count.get()[0] if self._count.exists() else 0
        now = before + sum(1 for _ in rows)
        self._count.update((now,))
        if now == self._wanted:
            yield Row(body=bytearray(key[0].encode()))

    def close(self) -> None:
        pass


def in_beam(name_server: str, source: str, sink: str, count: str, *flags: str) -> None:
    with beam.Pipeline(options=options(flags)) as pipeline:
        read = ReadFromRocketMQ(source, name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
        pairs = pipeline | read | beam.Map(key_of).with_output_types(tuple[str, int])
        found = pairs | beam.ParDo(Count(int(count))).with_output_types(Message)
        _ = found | WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


def by_hand(name_server: str, source: str, sink: str, count: str, checkpoint: str, *settings: str) -> None:
    builder = SparkSession.builder.appName("bench")
    for name, _, value in (each.partition("=") for each in settings):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    register(session)
    at = {"nameServer": name_server}
    records = session.readStream.format("rocketmq").schema("body binary").options(**at, subscribe=source)
    records = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_TRIGGER)
    keys = records.load().select(F.split(F.col("body").cast("string"), "\\|")[0].alias("key"))
    found = keys.groupBy("key").transformWithState(CountRows(int(count)), "body binary", "Append", "None")
    sent = found.writeStream.format("rocketmq").options(**at, topic=sink, checkpointLocation=checkpoint)
    sent.outputMode("append").trigger(availableNow=True).start().awaitTermination()


def main(side: str, *arguments: str) -> None:
    sides: dict[str, Callable[..., None]] = {"beam": in_beam, "hand": by_hand}
    sides[side](*arguments)


if __name__ == "__main__":
    from bench.streaming import stateful  # under its own name, for other processes

    stateful.main(*sys.argv[1:])
