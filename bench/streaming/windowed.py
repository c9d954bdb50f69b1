"""Counts by key in windows of event time, as a Beam pipeline: the same on Spark and on Flink.

python -m bench.streaming.windowed NAME_SERVER SOURCE SINK OPTION...
"""

from __future__ import annotations

import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

from bench.streaming.orders import WINDOW_S
from rmqio import Message, ReadFromRocketMQ, Record, StartFrom, WriteToRocketMQ
from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.start import StopAt


def time_of(record: Record) -> int:
    return int(record.body.partition(b"|")[2])


def key_of(record: Record) -> tuple[str, int]:
    return record.body.partition(b"|")[0].decode(), 1


def to_message(total: tuple[str, int], window: Any = beam.DoFn.WindowParam) -> Message:
    body = {"key": total[0], "start": int(window.start.micros) // 1000, "count": total[1]}
    return Message(json.dumps(body).encode())


def main(name_server: str, source: str, sink: str, *flags: str) -> None:
    with beam.Pipeline(options=options(flags)) as pipeline:
        read = ReadFromRocketMQ(
            source,
            name_server=name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            timestamp=time_of,
            options=ReadOptions(max_out_of_orderness_ms=5_000),
        )
        totals = (
            pipeline
            | read
            | beam.Map(key_of).with_output_types(tuple[str, int])
            | beam.WindowInto(FixedWindows(WINDOW_S))
            | beam.CombinePerKey(sum)
            | "To messages" >> beam.Map(to_message).with_output_types(Message)
        )
        _ = totals | WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


if __name__ == "__main__":
    from bench.streaming import windowed  # under its own name, for other processes

    windowed.main(*sys.argv[1:])
