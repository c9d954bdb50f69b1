"""Counts by key in windows of event time, as a Beam pipeline over batches, which are counted before the shuffle.

python -m bench.streaming.windowed_batches NAME_SERVER SOURCE SINK OPTION...
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from bench.streaming.orders import WINDOW_S
from bench.streaming.windowed import time_of, to_message
from rmqio import Batch, Message, ReadFromRocketMQ, Record, StartFrom, WriteToRocketMQ
from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.start import StopAt

_WINDOW_MS = WINDOW_S * 1000


class CountBundle(beam.DoFn):
    """Counts the keys of a bundle in each window, and emits one count per key and window at its end."""

    def start_bundle(self) -> None:
        self._counts: Counter[tuple[bytes, int]] = Counter()
        self._earliest_us: int | None = None

    def process(self, element: Batch[Record], timestamp: Any = beam.DoFn.TimestampParam) -> None:
        if self._earliest_us is None or timestamp.micros < self._earliest_us:
            self._earliest_us = timestamp.micros
        counts = self._counts
        for record in element:
            key, _, time = record.body.partition(b"|")
            counts[key, int(time) // _WINDOW_MS] += 1

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for (key, window), count in self._counts.items():
            # No element may be older than what it comes from.
            at = Timestamp(micros=max(window * _WINDOW_MS * 1000, self._earliest_us or 0))
            yield WindowedValue((key.decode(), count), at, (GlobalWindow(),))


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
            | beam.ParDo(CountBundle()).with_output_types(tuple[str, int])
            | beam.WindowInto(FixedWindows(WINDOW_S))
            | beam.CombinePerKey(sum)
            | "To messages" >> beam.Map(to_message).with_output_types(Message)
        )
        _ = totals | WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


if __name__ == "__main__":
    from bench.streaming import windowed_batches  # under its own name, for other processes

    windowed_batches.main(*sys.argv[1:])
