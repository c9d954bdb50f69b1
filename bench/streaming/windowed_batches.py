"""Counts by key in windows of event time, as a Beam pipeline over batches: each batch is counted before the shuffle.

python -m bench.streaming.windowed_batches NAME_SERVER SOURCE SINK OPTION...
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from bench.streaming.orders import WINDOW_S
from bench.streaming.windowed import time_of, to_message
from rmqio import Batch, Message, ReadFromRocketMQ, Record, StartFrom, WriteToRocketMQ
from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.start import StopAt

_WINDOW_MS = WINDOW_S * 1000


class CountBatch(beam.DoFn):
    """Counts the keys of a batch in each window, and emits one count per key and window."""

    def process(self, element: Batch[Record], timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        counts: Counter[tuple[bytes, int]] = Counter()
        for record in element:
            key, _, time = record.body.partition(b"|")
            counts[key, int(time) // _WINDOW_MS] += 1
        for (key, window), count in counts.items():
            at = Timestamp(micros=max(window * _WINDOW_MS * 1000, timestamp.micros))
            yield TimestampedValue((key.decode(), count), at)


def main(name_server: str, source: str, sink: str, *flags: str) -> None:
    with beam.Pipeline(options=options(flags)) as pipeline:
        read = ReadFromRocketMQ(
            source,
            name_server=name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            timestamp=time_of,
            batches=True,
            options=ReadOptions(max_out_of_orderness_ms=5_000),
        )
        totals = (
            pipeline
            | read
            | beam.ParDo(CountBatch()).with_output_types(tuple[str, int])
            | beam.WindowInto(FixedWindows(WINDOW_S))
            | beam.CombinePerKey(sum)
            | "To messages" >> beam.Map(to_message).with_output_types(Message)
        )
        _ = totals | WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


if __name__ == "__main__":
    from bench.streaming import windowed_batches  # under its own name, for other processes

    windowed_batches.main(*sys.argv[1:])
