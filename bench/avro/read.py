"""`ReadFromRocketMQ` with Avro beside the same read without decoding: messages per second, and ratio.

python -m bench.avro.read [--messages 200000] [--repeats 5]

It runs `read | Count` on a real broker with the in-process runner. The time of a pipeline over no messages is
subtracted from each run, because the start-up belongs to neither side. Bare fastavro, which checks nothing, shows the
limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, Final

import apache_beam as beam
import fastavro
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from bench.avro.__main__ import FLAT, NESTED, Flat, Nested, flat, nested
from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio import ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.local import LocalRocketMQ
from rmqio.model import Record
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.serde.avro.arrow import AvroToArrow

_HEAD: Final = ("values", "as", "with Avro/s", "without/s", "ratio", "target")
_TARGETS: Final = {"flat": "0.7", "nested": "0.45"}
_QUEUES: Final = 4
_COUNTED: list[int] = []
"""The counts of a pipeline: the runner works in this process."""


def fill(name_server: str, topic: str, schema: Any, make: Callable[[int], Any], count: int) -> None:
    """So many values as Avro."""

    def values(_: bytes) -> Iterator[Any]:
        return map(make, range(count))

    with _pipeline() as pipeline:
        made = pipeline | beam.Impulse() | beam.FlatMap(values)
        _ = made | WriteToRocketMQ(topic, name_server=name_server, serializer=AvroSerializer(schema), with_sent=False)


def seconds(read: ReadFromRocketMQ, count: int, *steps: beam.PTransform) -> float:
    """Returns the duration of a read of `count` messages. Raises `UnequalWork` if it finds others."""
    _COUNTED.clear()
    began = time.perf_counter()
    with _pipeline() as pipeline:
        elements = pipeline | read
        for step in steps:
            elements |= step
        _ = elements | beam.combiners.Count.Globally() | "Keep" >> beam.Map(_keep)
    found = time.perf_counter() - began
    if not steps and sum(_COUNTED) != count:
        raise UnequalWork(f"{_COUNTED} messages were read of {count}")
    return found


def lines_of(
    name_server: str, name: str, schema: Any, target: type, make: Callable[[int], Any], count: int, repeats: int
) -> list[list[str]]:
    """Returns the lines of one schema: typed records, rows and Arrow, each beside the records as they are."""
    topic, empty = f"avro-{name}", f"avro-{name}-empty"
    fill(name_server, topic, schema, make, count)

    def read(from_topic: str, **more: Any) -> ReadFromRocketMQ:
        ends: dict[str, Any] = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
        return ReadFromRocketMQ(from_topic, name_server=name_server, **ends, **more)

    parsed = fastavro.parse_schema(schema)

    def bare(record: Record) -> Any:
        return fastavro.schemaless_reader(BytesIO(record.body), parsed, None)

    ways: dict[str, tuple[dict[str, Any], list[beam.PTransform]]] = {
        target.__mro__[1].__name__.replace("tuple", "NamedTuple"): (
            {"deserializer": AvroDeserializer(schema, to=target)},
            [],
        ),
        "beam.Row": ({"deserializer": AvroDeserializer(schema, to="row")}, []),
        "dict, by bare fastavro": ({"deserializer": bare}, []),
        "Arrow (batches)": ({"batches": True}, [beam.Map(AvroToArrow(schema))]),
    }
    lines = []
    for kind, (more, steps) in ways.items():
        plain = {name: value for name, value in more.items() if name == "batches"}
        seconds(read(topic, **more), count, *steps)  # to warm up
        start_up = min(seconds(read(empty, **plain), 0, *steps, beam.Map(id)) for _ in range(3))
        rates = []
        for number in range(repeats):
            runs = [
                lambda more=more, steps=steps: seconds(read(topic, **more), count, *steps),  # type: ignore[misc]
                lambda plain=plain: seconds(read(topic, **plain), count, *([beam.Map(id)] if plain else [])),
            ]
            found = [run() - start_up for run in (runs if number % 2 else reversed(runs))]
            rates.append([count / each for each in (found if number % 2 else reversed(found))])
        ratios = sorted(one / other for one, other in rates)
        mine, others = (statistics.median(side) for side in zip(*rates, strict=True))
        cells = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        lines.append([name, kind, f"{mine:,.0f}", f"{others:,.0f}", cells, _TARGETS[name]])
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.avro.read", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    print(f"Machine: {machine_text()}. {given.messages:,} messages, {given.repeats} repeats.")
    with LocalRocketMQ() as broker:
        for name in ("flat", "nested"):
            for topic in (f"avro-{name}", f"avro-{name}-empty"):
                broker.create_topic(topic, queues=_QUEUES)
        sizes = given.messages, given.repeats
        lines = [
            *lines_of(broker.name_server, "flat", FLAT, Flat, flat, *sizes),
            *lines_of(broker.name_server, "nested", NESTED, Nested, nested, *sizes),
        ]
    print(aligned([_HEAD, *lines], left={0, 1}))
    return 0


def _keep(count: int) -> None:
    _COUNTED.append(count)


def _pipeline() -> beam.Pipeline:
    return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))


if __name__ == "__main__":
    # Under its own name, so that the runner, which is in this process, finds this module and not a copy.
    from bench.avro import read

    sys.exit(read.main())
