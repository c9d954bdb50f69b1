"""Our job of 41 patterns, as a program: `python -m bench.peers.matching --help`."""

from __future__ import annotations

import argparse
import json

import apache_beam as beam

from bench.peers.works import JOINED
from rmqio import ReadFromRocketMQ, StartFrom, WriteToRocketMQ
from rmqio.command_line.arguments import stop_parser
from rmqio.model import Record
from rmqio.runners.options import options


def matches(record: Record) -> bool:
    """Whether a line is wanted."""
    return JOINED.search(json.loads(record.body)["text"]) is not None


def main() -> None:
    """Runs until it is stopped, or has read what the topic held, with `--stop=latest`."""
    parser = argparse.ArgumentParser()
    for name in ("name_server", "source_topic", "sink_topic", "consumer_group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--runner", default="DirectRunner")
    parser.add_argument("--stop", type=stop_parser("none", "latest"))
    given, rest = parser.parse_known_args()
    start = StartFrom.group_offsets(reset="earliest")
    reading = ReadFromRocketMQ(
        given.source_topic,
        name_server=given.name_server,
        consumer_group=given.consumer_group,
        start=start,
        stop=given.stop,
    )
    with beam.Pipeline(options=options(rest, runner=given.runner)) as pipeline:
        _ = (
            pipeline
            | "Read" >> reading
            | "Match" >> beam.Filter(matches)
            | "Write" >> WriteToRocketMQ(given.sink_topic, name_server=given.name_server)
        )


if __name__ == "__main__":
    main()
