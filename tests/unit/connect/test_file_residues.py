"""`WriteToFiles` after a kill: an attempt leaves parts and files, and the next one each row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from rmqio.connect import WriteToFiles
from rmqio.connect.files.residues import FileName, remove_residues

FIRST = FileName(0, 2, 0, ".jsonl")
HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("written", "name", "is_residue"),
    [
        (FIRST, "part-00000-of-00002.jsonl", False),
        (FIRST, f".part-00000-of-00002.jsonl.{HEX}", True),
        (FIRST, "part-00000-of-00002-late1.jsonl", True),
        (FIRST, f".part-00000-of-00002-late12.jsonl.{HEX}", True),
        (FIRST, "part-00001-of-00002.jsonl", False),
        (FIRST, f".part-00001-of-00002.jsonl.{HEX}", False),
        (FIRST, "part-00000-of-00003-late1.jsonl", False),
        (FIRST, "part-00000-of-00002-late1.csv", False),
        (FIRST, "part-00000-of-00002-late1.jsonl.bak", False),
        (FIRST, f"part-00000-of-00002.jsonl.{HEX}", False),
        (FIRST, ".part-00000-of-00002-late1.jsonl", False),
        (FIRST._replace(firing=2), "part-00000-of-00002.jsonl", False),
        (FIRST._replace(firing=2), f".part-00000-of-00002.jsonl.{HEX}", False),
        (FIRST._replace(firing=2), "part-00000-of-00002-late1.jsonl", False),
        (FIRST._replace(firing=2), "part-00000-of-00002-late2.jsonl", False),
        (FIRST._replace(firing=2), f".part-00000-of-00002-late2.jsonl.{HEX}", True),
        (FIRST._replace(firing=2), "part-00000-of-00002-late10.jsonl", True),
    ],
)
def test_residues_are_what_the_attempt_that_is_repeated_has_left(
    written: FileName, name: str, is_residue: bool, tmp_path: Path
) -> None:
    assert written.is_residue(name) is is_residue
    folder = tmp_path / "a[b]*c"  # no pattern
    folder.mkdir()
    (folder / name).touch()
    remove_residues(str(folder), written)
    assert (folder / name).exists() is not is_residue


def test_late_files_of_an_attempt_that_had_come_further_do_not_double_their_rows(tmp_path: Path) -> None:
    """The row 9 came too late for the first attempt. The second one has it in time."""

    def at(second: int) -> TimestampedValue:
        return TimestampedValue({"n": second}, second)

    events = [[at(1)], 11, [at(9)]], [[at(1), at(9)], 11, []]
    for attempt in events:
        stream = Stream()
        for each in attempt:
            stream = stream.add_elements(each) if isinstance(each, list) else stream.advance_watermark_to(each)
        with beam.Pipeline(options=PipelineOptions(["--streaming"])) as pipeline:
            _ = (
                pipeline
                | stream.advance_watermark_to_infinity()
                | beam.WindowInto(
                    FixedWindows(10),
                    trigger=AfterWatermark(late=AfterCount(1)),
                    accumulation_mode=AccumulationMode.DISCARDING,
                    allowed_lateness=100,
                )
                | WriteToFiles(str(tmp_path), "jsonl")
            )
        found = sorted(each.name for each in tmp_path.rglob("part-*"))
        assert len(found) == (2 if attempt is events[0] else 1), found
    assert numbers(tmp_path) == Counter([1, 9])


def test_the_shard_of_a_row_depends_on_nothing_else(tmp_path: Path) -> None:
    rows = [{"n": number, "text": "ä" * number} for number in range(20)]
    found = []
    for order in (1, -1):
        folder = tmp_path / f"{order}"
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create(rows[::order], reshuffle=False) | WriteToFiles(str(folder), "jsonl", shards=3)
        found.append([sorted(numbers_of(each)) for each in sorted(folder.iterdir())])
    assert found[0] == found[1]
    assert len(found[0]) == 3
    assert sorted(number for shard in found[0] for number in shard) == [*range(20)]


PROGRAM = """
import sys
import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from rmqio.connect import WriteToFiles
from rmqio.runners.options import options

with beam.Pipeline(options=options(sys.argv[2:], runner="DirectRunner")) as pipeline:
    _ = (
        pipeline
        | beam.Create(range(3_000))
        | beam.Map(lambda n: TimestampedValue({"n": n}, n // 10))
        | beam.WindowInto(FixedWindows(1))
        | WriteToFiles(sys.argv[1], "jsonl", shards=3)
    )
"""


@pytest.mark.parametrize(
    "runner",
    [
        "DirectRunner",
        pytest.param("SparkRunner --spark_master_url=local[2]", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_a_program_that_is_killed_and_started_again_leaves_each_row_once(runner: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    if runner.startswith("Spark"):
        pytest.importorskip("pyspark", reason="SparkRunner needs the extra 'spark'")
    command = [sys.executable, "-c", PROGRAM, str(folder), *f"--runner={runner}".split()]
    with open(tmp_path / "log", "wb") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    until = time.monotonic() + 120
    while not any(folder.glob("*/part-*")):
        assert program.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < until, (tmp_path / "log").read_text()
        time.sleep(0.001)
    os.killpg(program.pid, signal.SIGKILL)
    program.wait(30)
    assert sum(numbers(folder).values()) < 3_000, "it was killed midway"
    for window in [*folder.iterdir()][:5]:  # what a kill can leave, wherever it came
        (window / f".part-00001-of-00003.jsonl.{HEX}").write_text('{"n":1')
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(folder) == Counter(range(3_000))
    assert [*folder.glob("*/.part-00001*")] == []


def numbers(folder: Path) -> Counter[Any]:
    """The rows of all files that a reader takes."""
    return Counter(number for each in folder.rglob("part-*") for number in numbers_of(each))


def numbers_of(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]
