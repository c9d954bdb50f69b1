"""Our transforms on Beam's in-process runner (`FnApiRunner`). Runs in a worker process, one function a run.

The clock covers everything from making the pipeline to its end, so Beam's own start-up is part of each figure;
`bench.client.cases` also measures it alone, over an empty topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from bench.client.ours import Sums, body
from bench.common.rss import rss_mb
from rmqio import MapRecords, Message, ReadFromRocketMQ, StartFrom, StopAt, WriteOptions, WriteToRocketMQ
from rmqio.model import Record

_RESULTS: list[Any] = []
"""The result of a pipeline, which leaves it here: the runner works in this process."""
_progress = 0
_SAMPLE_S = 0.05


def read(name_server: str, topic: str) -> dict[str, Any]:
    """`ReadFromRocketMQ | Count`, an element at a time."""
    started = time.perf_counter()
    with _pipeline() as pipeline:
        counted = pipeline | _read(name_server, topic) | beam.combiners.Count.Globally()
        _ = counted | "Keep" >> beam.Map(_keep)
    return {"seconds": time.perf_counter() - started, "count": _result()}


def read_batches(name_server: str, topic: str) -> dict[str, Any]:
    """`ReadFromRocketMQ(batches=True)`, the lengths of the batches summed up."""
    started = time.perf_counter()
    with _pipeline() as pipeline:
        lengths = pipeline | _read(name_server, topic, batches=True) | beam.Map(len)
        _ = lengths | beam.CombineGlobally(sum) | "Keep" >> beam.Map(_keep)
    return {"seconds": time.perf_counter() - started, "count": _result()}


def read_checked(name_server: str, topic: str, batches: bool) -> dict[str, Any]:
    """The same read, with all sums of `Tally`; for the warm-up, whose time does not count."""
    with _pipeline() as pipeline:
        records = pipeline | _read(name_server, topic, batches=batches)
        parts = records | "Add up" >> beam.Map(_sums_of if batches else _sums_of_one)
        _ = parts | beam.CombineGlobally(_add_sums) | "Keep" >> beam.Map(_keep)
    return Sums(*_result()).answer(0.0)


def write(
    name_server: str, topic: str, count: int, size: int, batch: int, in_flight: int, with_sent: bool
) -> dict[str, Any]:
    """`count` messages made by a DoFn, to `WriteToRocketMQ` with Java's batch size and number in flight."""
    _bodies(count, size)
    started = time.perf_counter()
    with _pipeline() as pipeline:
        messages = pipeline | beam.Impulse() | beam.FlatMap(_messages, count, size).with_output_types(Message)
        _ = messages | WriteToRocketMQ(
            topic, name_server=name_server, options=_options(batch, in_flight), with_sent=with_sent
        )
    return {"seconds": time.perf_counter() - started, "count": count, "bytes": count * size}


def write_batches(name_server: str, topic: str, count: int, size: int, batch: int, in_flight: int) -> dict[str, Any]:
    """As `write` with `with_sent`, in lists of as many messages as Java's batches have."""
    _bodies(count, size)
    started = time.perf_counter()
    with _pipeline() as pipeline:
        lists = pipeline | beam.Impulse() | beam.FlatMap(_lists, count, size, batch).with_output_types(list[Message])
        _ = lists | WriteToRocketMQ(topic, name_server=name_server, options=_options(batch, in_flight), batches=True)
    return {"seconds": time.perf_counter() - started, "count": count, "bytes": count * size}


def copy(name_server: str, topic: str, sink: str, batch: int, in_flight: int, batches: bool) -> dict[str, Any]:
    """Topic to topic through a function that returns its record, an element at a time or in batches."""
    started = time.perf_counter()
    with _pipeline() as pipeline:
        records = pipeline | _read(name_server, topic, batches=batches)
        mapped = records | (MapRecords(_same) if batches else beam.Map(_same).with_output_types(Record))
        write = WriteToRocketMQ(
            sink, name_server=name_server, options=_options(batch, in_flight), with_sent=False, batches=batches
        )
        _ = mapped | write
    return {"seconds": time.perf_counter() - started}


def _same(record: Record) -> Record:
    return record


def _options(batch: int, in_flight: int) -> WriteOptions:
    return WriteOptions(
        max_batch_messages=batch,
        max_batch_bytes=1 << 20,
        max_in_flight=in_flight,
        asynchronous=True,
        request_timeout_ms=30_000,
    )


def read_memory(name_server: str, topic: str, expected: int) -> dict[str, Any]:
    """`ReadFromRocketMQ | Count`, with the resident set sampled all the while, by the part that has been read."""
    global _progress
    _progress = 0
    samples: list[tuple[int, float]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(_SAMPLE_S):
            samples.append((_progress, rss_mb()))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    started = time.perf_counter()
    with _pipeline() as pipeline:
        seen = pipeline | _read(name_server, topic) | "Progress" >> beam.Map(_see)
        _ = seen | beam.combiners.Count.Globally() | "Keep" >> beam.Map(_keep)
    seconds = time.perf_counter() - started
    done.set()
    sampler.join()
    return {"seconds": seconds, "count": _result(), "samples": [(seen / expected, mb) for seen, mb in samples]}


def _pipeline() -> beam.Pipeline:
    _RESULTS.clear()
    return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))


def _read(name_server: str, topic: str, *, batches: bool = False) -> ReadFromRocketMQ:
    return ReadFromRocketMQ(
        topic, name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest(), batches=batches
    )


def _keep(value: Any) -> None:
    _RESULTS.append(value)


def _result() -> Any:
    (value,) = _RESULTS
    return value


def _see(record: Record) -> Record:
    global _progress
    _progress += 1
    return record


def _sums_of(records: list[Record]) -> tuple[int, int, int, int]:
    sums = Sums()
    sums.add(records[0].queue_id, records)
    return sums.count, sums.bytes, sums.offsets, sums.crcs


def _sums_of_one(record: Record) -> tuple[int, int, int, int]:
    return _sums_of([record])


def _add_sums(parts: Iterable[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    count = size = offsets = crcs = 0
    for part in parts:
        count, size, offsets, crcs = count + part[0], size + part[1], offsets + part[2], crcs + part[3]
    return count, size, offsets, crcs


_made: tuple[tuple[int, int], list[bytes]] = ((0, 0), [])


def _bodies(count: int, size: int) -> list[bytes]:
    # Made before the clock starts, as on the Java side.
    global _made
    if _made[0] != (count, size):
        _made = (count, size), [body(number, size) for number in range(count)]
    return _made[1]


def _messages(_: bytes, count: int, size: int) -> Iterator[Message]:
    for number, content in enumerate(_bodies(count, size)):
        yield Message(content, tags="bench", keys=(f"k{number}",))


def _lists(_: bytes, count: int, size: int, batch: int) -> Iterator[list[Message]]:
    bodies = _bodies(count, size)
    for begin in range(0, count, batch):
        some = enumerate(bodies[begin : begin + batch], begin)
        yield [Message(content, tags="bench", keys=(f"k{number}",)) for number, content in some]
