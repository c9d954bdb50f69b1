"""One of the pipelines, cut after some of its parts: what a part takes is what a run takes more with it.

python -m bench.runners.parts word_count 2 --name_server=HOST:PORT --source_topic=A --sink_topic=B [Beam's options]
"""

from __future__ import annotations

import rmqio  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import operator
import sys
from collections.abc import Callable
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.combiners import Count
from apache_beam.transforms.window import FixedWindows

from pipelines import province, windowed_orders, word_count
from rmqio import MapRecords, Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.runners.program import run_program

Part = Callable[[Any, argparse.Namespace], Any]
PARTS: Final = ("read", "decode", "shuffle", "write")


def _read(pipeline: Any, given: argparse.Namespace, **more: Any) -> Any:
    at = {"name_server": given.name_server, "start": StartFrom.earliest(), "stop": StopAt.latest()}
    return pipeline | "Read" >> ReadFromRocketMQ(given.source_topic, **at, **more)


def _write(messages: Any, given: argparse.Namespace, **more: Any) -> Any:
    to = WriteToRocketMQ(given.sink_topic, name_server=given.name_server, with_sent=False, **more)
    return (messages | "Write" >> to).failed


def _read_orders(pipeline: Any, given: argparse.Namespace) -> Any:
    late = ReadOptions(max_out_of_orderness_ms=5_000)
    return _read(pipeline, given, timestamp=windowed_orders.event_time, options=late)


def _read_batches(pipeline: Any, given: argparse.Namespace) -> Any:
    return _read(pipeline, given, batches=True)


def _provinces(batches: Any, _: argparse.Namespace) -> Any:
    return batches | MapRecords(province.to_province)


def _write_provinces(provinces: Any, given: argparse.Namespace) -> Any:
    return _write(provinces, given, serializer=province.to_message, id_fn=operator.itemgetter(0), batches=True)


def _orders(records: Any, _: argparse.Namespace) -> Any:
    return records | beam.Map(windowed_orders.to_pair).with_output_types(tuple[str, float])


def _order_totals(pairs: Any, _: argparse.Namespace) -> Any:
    totals = pairs | beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(windowed_orders.SumAndCount())
    return totals | "To messages" >> beam.Map(windowed_orders.to_message).with_output_types(Message)


def _words(records: Any, _: argparse.Namespace) -> Any:
    return records | beam.ParDo(word_count.SplitWords()).with_output_types(str)


def _word_totals(words: Any, _: argparse.Namespace) -> Any:
    return words | Count.PerElement() | "To messages" >> beam.Map(word_count.to_message).with_output_types(Message)


PIPELINES: Final[dict[str, dict[str, Part]]] = {
    "province": {"read": _read_batches, "decode": _provinces, "write": _write_provinces},
    "windowed_orders": {"read": _read_orders, "decode": _orders, "shuffle": _order_totals, "write": _write},
    "word_count": {"read": _read, "decode": _words, "shuffle": _word_totals, "write": _write},
}
"""The parts of each pipeline, in order. Event times of orders are decoded by the read."""


def drop(_: Any) -> None:
    """Drops an element where the pipeline is cut."""


def build(pipeline: beam.Pipeline, given: argparse.Namespace) -> None:
    found: Any = pipeline
    for part in [*PIPELINES[given.pipeline].values()][: given.parts]:
        found = part(found, given)
    _ = found | "Drop" >> beam.Map(drop)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.runners.parts", allow_abbrev=False)
    parser.add_argument("pipeline", choices=PIPELINES)
    parser.add_argument("parts", type=int)
    for name in ("name_server", "source_topic", "sink_topic"):
        parser.add_argument(f"--{name}", required=True)
    given, rest = parser.parse_known_args()
    return run_program("parts", options(rest), lambda pipeline: build(pipeline, given), lambda _: "done")


if __name__ == "__main__":
    from bench.runners import parts  # under its own name, for other processes

    sys.exit(parts.main())
