"""A pipeline that counts messages by key in windows, gives its results no ids, and fails after it has written some."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

from rmqio.errors import RmqioError
from rmqio.model import Message, Record
from rmqio.options import ReadOptions
from rmqio.runners import options
from rmqio.runners.program import run_program
from rmqio.start import StartFrom
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ

WINDOW_S = 10
QUICK = ReadOptions(poll_timeout_ms=1_000, idle_timeout_ms=600_000)


class FailOnce(beam.DoFn):
    """Fails when it sees its first result, unless a process has already failed. What it sees is stored by then."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def process(self, element: object) -> None:
        with contextlib.suppress(FileExistsError):
            self._marker.touch(exist_ok=False)
            raise RmqioError("after the write, once")


def body_of(key: str, second: int) -> bytes:
    return f"{key} {second}".encode()


def key_of(record: Record) -> tuple[str, int]:
    return record.body.decode().split()[0], 1


def time_of(record: Record) -> int:
    return int(record.body.split()[1]) * 1000


def total_of(pair: tuple[str, int]) -> Message:
    """The message does not name the window, so messages of different windows are equal."""
    return Message(f"{pair[0]} {pair[1]}".encode())


def build(pipeline: beam.Pipeline, given: argparse.Namespace) -> None:
    at = {"name_server": given.name_server}
    written = (
        pipeline
        | "Read" >> ReadFromRocketMQ(given.source, start=StartFrom.earliest(), timestamp=time_of, options=QUICK, **at)
        | "Key" >> beam.Map(key_of).with_output_types(tuple[str, int])
        | "Window" >> beam.WindowInto(FixedWindows(WINDOW_S))
        | "Count" >> beam.CombinePerKey(sum)
        | "Write" >> WriteToRocketMQ(given.sink, serializer=total_of, **at)
    )
    _ = written.sent | "Fail" >> beam.ParDo(FailOnce(Path(given.marker)))


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("name_server", "source", "sink", "marker"):
        parser.add_argument(f"--{name}")
    given, rest = parser.parse_known_args([each for each in sys.argv[1:] if each != "-v"])
    return run_program("counting.py", options(rest), lambda pipeline: build(pipeline, given), lambda _: "done")


if __name__ == "__main__":
    # Uses the module's own name, so that other processes find the functions that are sent to them.
    from tests.helpers.pipelines import counting

    sys.exit(counting.main())
