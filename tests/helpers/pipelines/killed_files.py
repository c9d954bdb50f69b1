"""A program that writes files, killed midway and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.helpers.waiting import at_most, runs, until

HEX: Final = "0123456789abcdef" * 2
"""The end of the name of a part that an attempt has left."""
_PROGRAM: Final = """
import sys
import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from rmqio.connect import WriteToFiles
from rmqio.runners.options import options

with beam.Pipeline(options=options(sys.argv[2:])) as pipeline:
    _ = (
        pipeline
        | beam.Create(range(3_000))
        | beam.Map(lambda n: TimestampedValue({"n": n}, n // 10))
        | beam.WindowInto(FixedWindows(1))
        | WriteToFiles(sys.argv[1], "jsonl", shards=3)
    )
"""


def check_killed_and_started_again(runner: str, folder: Path) -> None:
    """Kills it when the first file is there. In the end each row must be in one file, and no part be left."""
    out, log_file = folder / "out", folder / "log"
    command = [sys.executable, "-c", _PROGRAM, str(out), *f"--runner={runner}".split()]
    with log_file.open("wb") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    until(
        lambda: any(out.glob("*/part-*")),
        "the first file",
        alive=[runs(program, log_file.read_text)],
        details=log_file.read_text,
        still_s=120,
        pause_s=0.001,
    )
    os.killpg(program.pid, signal.SIGKILL)
    program.wait(at_most(30))
    assert sum(numbers(out).values()) < 3_000, "it was killed midway"
    for window in [*out.iterdir()][:5]:  # what a kill can leave, wherever it came
        for shard in range(3):
            (window / f".part-{shard:05}-of-00003.jsonl.{HEX}").write_text('{"n":1')
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(300), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(out) == Counter(range(3_000))
    left = [each.with_name(each.name[1:].removesuffix(f".{HEX}")) for each in out.glob("*/.part-*")]
    assert [each for each in left if each.exists()] == []
    assert len(left) < 15, "a shard of a window can be without rows, but most are not"


def numbers(folder: Path) -> Counter[Any]:
    """The rows of all files that a reader takes."""
    return Counter(number for each in folder.rglob("part-*") for number in numbers_of(each))


def numbers_of(path: Path) -> list[int]:
    """The rows of a file."""
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]
