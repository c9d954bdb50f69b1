"""A pipeline that copies a topic to another one without its duplicates. On Flink, it is a separate program."""

from __future__ import annotations

import argparse
import sys

import apache_beam as beam

from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.runners.program import run_program
from rmqio.start import StartFrom, StopAt
from rmqio.transforms import DropDuplicates, ReadFromRocketMQ, WriteToRocketMQ

QUICK = ReadOptions(poll_timeout_ms=1_000, idle_timeout_ms=2_000)


def copying(pipeline: beam.Pipeline, source: str, sink: str, name_server: str, stop: StopAt | None) -> None:
    read = ReadFromRocketMQ(
        source,
        name_server=name_server,
        start=StartFrom.earliest(),
        stop=stop,
        deduplicate=DropDuplicates(),
        options=QUICK,
    )
    _ = pipeline | "Read" >> read | "Write" >> WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("name_server", "source", "sink"):
        parser.add_argument(f"--{name}")
    given, rest = parser.parse_known_args([each for each in sys.argv[1:] if each != "-v"])
    return run_program(
        "deduplicating.py",
        options(rest),
        lambda pipeline: copying(pipeline, given.source, given.sink, given.name_server, None),
        lambda _: "done",
    )


if __name__ == "__main__":
    # Uses the module's own name, so that other processes find the functions that are sent to them.
    from tests.helpers.pipelines import deduplicating

    sys.exit(deduplicating.main())
