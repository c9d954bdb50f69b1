"""The stream under the faults, as a user writes it: `python -m tests.chaos.stream_pipeline --runner=... OPTION...`.

It reads a topic without end and writes three others: a copy of each message; panes of windows of event time, each with
all messages of a key that the window has by then; and, by key, when a timer fires, what has come since the last time
and how many there have been, out of user state. Each message is named by its place: broker/queue/offset.
"""

from __future__ import annotations

import rmqio  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import json
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom, WriteOptions, WriteToRocketMQ
from rmqio.model import Message, Record
from rmqio.runners import options
from rmqio.runners.program import run_program
from rmqio.security import Security
from tests.chaos.pipelines import copy_of, refuse
from tests.chaos.writers import EVENT_TIME

WINDOW_S: Final = 10
_KEYS: Final = 24
_NEVER_TOO_LATE_S: Final = 3_600  # longer than any run: nothing may be dropped
_EMIT_S: Final = 1.0
_READ: Final = ReadOptions(
    poll_timeout_ms=200,
    discovery_interval_ms=1_000,
    offset_commit_interval_ms=500,
    name_server_poll_interval_ms=500,
    request_timeout_ms=1_500,
    max_out_of_orderness_ms=2_000,  # a part of the messages is later than that
    idle_timeout_ms=2_000,
)
_WRITE: Final = WriteOptions(
    request_timeout_ms=1_500, max_retries=30, max_batch_messages=200, name_server_poll_interval_ms=2_000
)
"""Patient: what a dead broker is to get waits for it."""


class Told(NamedTuple):
    """A message that is written to a sink."""

    id: str
    body: str


def key_of(id_: str) -> str:
    """The key of a message."""
    return f"key-{zlib.crc32(id_.encode()) % _KEYS}"


def place_of(record: Record) -> str:
    """Returns what tells a message from all others, also from its copy that a producer has stored by a second try."""
    return f"{record.broker}/{record.queue_id}/{record.queue_offset}"


def digest_of(places: Iterable[str]) -> int:
    """A sum, so that the order does not matter; that of millions of messages is below 2**63."""
    return sum(zlib.crc32(place.encode()) for place in places)


def to_pair(record: Record) -> tuple[str, str]:
    return key_of(record.body.decode()), place_of(record)


class TellPane(beam.DoFn):
    """The places that a pane holds, in no order that depends on how they came."""

    def process(
        self,
        element: tuple[str, Iterable[str]],
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Told]:
        key, found = element
        places = sorted(found)
        start_s = int(window.start.micros) // 1_000_000
        body = {"key": key, "start_s": start_s, "pane": pane.index, "places": places}
        yield Told(f"{key}/{start_s}/{pane.index}/{digest_of(places):x}", json.dumps(body))


class Total(beam.CombineFn):
    """A sum whose accumulator is a number, as its coder wants it: that of `sum` is a list."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


class Tally(beam.DoFn):
    """Counts a key's messages in state; a timer of the clock reports what has come since its last report."""

    COUNT = CombiningValueStateSpec("count", VarIntCoder(), Total())
    DIGEST = CombiningValueStateSpec("digest", VarIntCoder(), Total())
    NUMBER = ReadModifyWriteStateSpec("number", VarIntCoder())
    NEW = BagStateSpec("new", StrUtf8Coder())
    IS_SET = ReadModifyWriteStateSpec("is set", VarIntCoder())
    EMIT = TimerSpec("emit", TimeDomain.REAL_TIME)

    def process(
        self,
        element: tuple[str, str],
        count: Any = beam.DoFn.StateParam(COUNT),
        digest: Any = beam.DoFn.StateParam(DIGEST),
        new: Any = beam.DoFn.StateParam(NEW),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
        emit: Any = beam.DoFn.TimerParam(EMIT),
    ) -> None:
        _, place = element
        count.add(1)
        digest.add(digest_of([place]))
        new.add(place)
        if not is_set.read():
            is_set.write(1)
            emit.set(time.time() + _EMIT_S)

    @on_timer(EMIT)
    def emit(
        self,
        key: Any = beam.DoFn.KeyParam,
        count: Any = beam.DoFn.StateParam(COUNT),
        digest: Any = beam.DoFn.StateParam(DIGEST),
        number: Any = beam.DoFn.StateParam(NUMBER),
        new: Any = beam.DoFn.StateParam(NEW),
        is_set: Any = beam.DoFn.StateParam(IS_SET),
    ) -> Iterator[Told]:
        at = number.read() or 0
        number.write(at + 1)
        body = {"key": key, "number": at, "count": count.read(), "digest": digest.read(), "new": sorted(new.read())}
        new.clear()
        is_set.clear()
        yield Told(f"{key}/{at}/{body['digest']:x}", json.dumps(body))


def to_message(each: Told) -> Message:
    return Message(each.body.encode())


def id_of(each: Told) -> str:
    return each.id


def told(records: Any) -> tuple[Any, Any]:
    """Panes and counts of records."""
    pairs = records | "Pairs" >> beam.Map(to_pair).with_output_types(tuple[str, str])
    windows = beam.WindowInto(
        FixedWindows(WINDOW_S),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
        allowed_lateness=_NEVER_TOO_LATE_S,
    )
    grouped = pairs | "Windows" >> windows | "By key" >> beam.GroupByKey()
    panes = grouped | "Panes" >> beam.ParDo(TellPane()).with_output_types(Told)
    counts = pairs | "Tally" >> beam.ParDo(Tally()).with_output_types(Told)
    return panes, counts


def build(pipeline: beam.Pipeline, arguments: argparse.Namespace) -> None:
    """Wire the stream."""
    security = Security(address_map=dict(pair.split("=") for pair in arguments.address_map))
    at: dict[str, Any] = {"name_server": arguments.name_server, "security": security}

    def write(label: str, what: Any, topic: str, serializer: Any, id_fn: Any) -> None:
        written = what | f"Write {label}" >> WriteToRocketMQ(
            topic, serializer=serializer, id_fn=id_fn, with_sent=False, options=_WRITE, **at
        )
        _ = written.failed | f"Refuse {label}" >> beam.Map(refuse)

    records = pipeline | "Read" >> ReadFromRocketMQ(
        arguments.source,
        consumer_group=arguments.group,
        start=StartFrom.earliest(),
        timestamp=EVENT_TIME,
        options=_READ,
        **at,
    )
    panes, counts = told(records)
    write("copies", records, arguments.copies, copy_of, place_of)
    write("panes", panes, arguments.panes, to_message, id_of)
    write("counts", counts, arguments.counts, to_message, id_of)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    for name in ("name_server", "source", "copies", "panes", "counts", "group"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--address_map", action="append", default=[])
    arguments, rest = parser.parse_known_args()
    return run_program(
        "stream_pipeline.py", options(rest), lambda pipeline: build(pipeline, arguments), lambda _: "ended"
    )


if __name__ == "__main__":
    # Under its own name, so that other processes find the functions that they are sent.
    from tests.chaos import stream_pipeline

    sys.exit(stream_pipeline.main())
