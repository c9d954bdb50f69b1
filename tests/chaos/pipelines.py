"""The two pipelines, each in a process of its own: `python -m tests.chaos.pipelines read|copy OPTION...`.

`read` reads a topic without end. `copy` copies it to another one in runs that end, each from where the
group is by then. Both write a line for each message they read, before its offset is committed. They end with their
standard input.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom, StopAt, WriteOptions, WriteToRocketMQ
from rmqio.errors import RmqioError
from rmqio.model import Message, MessageQueue, Record
from rmqio.security import Security
from rmqio.sending.batches import FailedMessage
from tests.chaos.writers import SENT_ID
from tests.helpers.ledgers.ledger import Entry

_READ = ReadOptions(
    poll_timeout_ms=200,
    discovery_interval_ms=1_000,
    offset_commit_interval_ms=500,
    name_server_poll_interval_ms=2_000,
    request_timeout_ms=1_500,
)
_WRITE = WriteOptions(
    request_timeout_ms=1_500, max_retries=2, max_batch_messages=200, name_server_poll_interval_ms=2_000
)


def line_of(entry: Entry) -> str:
    """One message as a line of a ledger."""
    topic, broker, queue_id = entry.queue
    return f"{broker} {queue_id} {entry.offset} {entry.id} {topic}\n"


def entry_of(line: str) -> Entry:
    """The opposite."""
    broker, queue_id, offset, id_, topic = line.split()
    return Entry(MessageQueue(topic, broker, int(queue_id)), int(offset), id_)


class Note(beam.DoFn):
    """Writes down each message, on disk as far as a killed process is concerned when its bundle ends."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def setup(self) -> None:
        self._lines = self._file.open("a")

    def process(self, element: Record) -> Iterator[Record]:
        self._lines.write(line_of(Entry(element.queue, element.queue_offset, element.body.decode())))
        yield element

    def finish_bundle(self) -> None:
        self._lines.flush()

    def teardown(self) -> None:
        self._lines.close()


def copy_of(record: Record) -> Message:
    """Its body says which message of which queue it was; copies of one queue stay in order."""
    entry = Entry(record.queue, record.queue_offset, record.body.decode())
    return Message(
        json.dumps(entry).encode(),
        sharding_key=f"{record.broker}/{record.queue_id}",
        properties={SENT_ID: record.body.decode()},
    )


def original_of(body: bytes) -> Entry:
    """Returns the place and id of the message that a copy was made from."""
    queue, offset, id_ = json.loads(body)
    return Entry(MessageQueue(*queue), offset, id_)


def message_id(record: Record) -> str:
    return record.message_id


def refuse(failed: FailedMessage) -> None:
    raise RmqioError(failed.reason)


def read(arguments: argparse.Namespace) -> None:
    """Never returns."""
    _run(arguments, None)


def copy(arguments: argparse.Namespace) -> None:
    """Run after run; never returns. Each leaves a line, which begins with `failed` if it did."""
    with arguments.runs.open("a") as runs:
        while True:
            try:
                _run(arguments, StopAt.latest())
                outcome = "done"
            except Exception:  # noqa: BLE001 (the next run makes up for it; the ledger says whether that is so)
                traceback.print_exc()
                outcome = "failed"
            runs.write(f"{outcome}\n")
            runs.flush()


def _run(arguments: argparse.Namespace, stop: StopAt | None) -> None:
    security = Security(address_map=dict(pair.split("=") for pair in arguments.address_map))
    at: dict[str, Any] = {"name_server": arguments.name_server, "security": security}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = (
            pipeline
            | ReadFromRocketMQ(
                arguments.source,
                consumer_group=arguments.group,
                start=StartFrom.group_offsets("earliest"),
                stop=stop,
                options=_READ if stop is None else dataclasses.replace(_READ, discovery_interval_ms=0),
                **at,
            )
            | beam.ParDo(Note(arguments.ledger)).with_output_types(Record)
        )
        if stop is not None:
            written = records | WriteToRocketMQ(
                arguments.sink, serializer=copy_of, id_fn=message_id, with_sent=False, options=_WRITE, **at
            )
            _ = written.failed | beam.Map(refuse)


def _end_with_input() -> None:
    os.read(0, 1)  # not by `sys.stdin`, whose lock would be held when the process ends by itself
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("what", choices=("read", "copy"))
    for name in ("name_server", "source", "sink", "group"):
        parser.add_argument(f"--{name}")
    for name in ("ledger", "runs"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--address_map", action="append", default=[])
    arguments = parser.parse_args()
    threading.Thread(target=_end_with_input, daemon=True).start()
    {"read": read, "copy": copy}[arguments.what](arguments)


if __name__ == "__main__":
    # Under its own name, so that what Beam pickles is found.
    from tests.chaos import pipelines

    pipelines.main()
