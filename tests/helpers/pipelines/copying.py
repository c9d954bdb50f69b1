"""A pipeline that copies a topic to another one, each message with its place. The suite of all runners runs it.

The order of a queue does not change, because its copies have one sharding key. Copies have the ids of their originals.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

import apache_beam as beam

from rmqio.audit import Audit
from rmqio.command_line.arguments import start_parser, stop_parser
from rmqio.errors import RmqioError
from rmqio.model import Message, Record
from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.runners.program import count, run_program
from rmqio.sending.batches import FailedMessage
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ
from tests.helpers.pipelines.holding import add_options, hold

FLAGS = ReadOptions(poll_timeout_ms=1_000, offset_commit_interval_ms=0, idle_timeout_ms=2_000)


def copy_of(record: Record) -> Message:
    """Returns a copy whose body says which message of which queue it is."""
    body = {"broker": record.broker, "queue": record.queue_id, "offset": record.queue_offset}
    body["id"] = record.body.decode()
    return Message(json.dumps(body).encode(), sharding_key=str(record.queue_id))


def message_id(record: Record) -> str:
    return record.message_id


def refuse(failed: FailedMessage) -> None:
    raise RmqioError(failed.reason)


def build(pipeline: beam.Pipeline, arguments: argparse.Namespace) -> None:
    at = {"name_server": arguments.name_server}
    records = pipeline | "Read" >> ReadFromRocketMQ(
        arguments.source,
        consumer_group=arguments.group,
        start=arguments.start,
        stop=arguments.stop,
        options=dataclasses.replace(FLAGS, discovery_interval_ms=arguments.discovery_interval_ms),
        **at,
    )
    records = hold(records, arguments)
    if arguments.hops:
        records |= Audit("before the write", topic=arguments.hops, **at)
    written = records | "Write" >> WriteToRocketMQ(
        arguments.sink, serializer=copy_of, id_fn=message_id, with_sent=False, **at
    )
    _ = written.failed | "Refused" >> beam.Map(refuse)


_start = start_parser("earliest", "latest", "group", "group:RESET", "timestamp:TIME")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("name_server", "source", "sink", "group"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--start", type=_start, default="group:earliest")
    parser.add_argument("--stop", type=stop_parser("none", "latest", "timestamp:TIME"))
    add_options(parser)
    parser.add_argument("--hops", help="an audit topic, which counts what goes to the write")
    parser.add_argument("--discovery_interval_ms", type=int, default=FLAGS.discovery_interval_ms)
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser


def arguments_of(command: Sequence[str]) -> argparse.Namespace:
    """Returns the arguments for `build` from a command line without the runner's flags."""
    return _parser().parse_args(command)


def main() -> int:
    arguments, rest = _parser().parse_known_args()
    return run_program(
        "copying.py",
        options(rest),
        lambda pipeline: build(pipeline, arguments),
        lambda result: f"{count(result, 'records_read')} read, {count(result, 'messages_sent')} sent",
        verbose=arguments.verbose,
    )


if __name__ == "__main__":
    # Uses the module's own name, so that other processes find the functions that are sent to them.
    from tests.helpers.pipelines import copying

    sys.exit(copying.main())
