"""`WriteToFiles` after a kill: an attempt leaves parts and files, and the next one each row once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from rmqio.connect import WriteToFiles
from rmqio.connect.files.write import FileName, remove_residues
from tests.helpers.pipelines.killed_files import HEX, check_killed_and_started_again, numbers, numbers_of

FIRST = FileName(0, 2, 0, ".jsonl")


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


def test_a_program_that_is_killed_and_started_again_leaves_each_row_once(tmp_path: Path) -> None:
    """On Spark: tests/runners/test_connect.py."""
    check_killed_and_started_again("DirectRunner", tmp_path)


@pytest.mark.parametrize("windowed", [False, True], ids=["global", "windows"])
def test_files_of_another_number_of_shards_are_an_error(windowed: bool, tmp_path: Path) -> None:
    """They would not be replaced, and each row would be there twice."""

    def write(shards: int) -> None:
        with beam.Pipeline() as pipeline:
            rows = pipeline | beam.Create([TimestampedValue({"n": n}, n) for n in range(9)]) | beam.Map(lambda row: row)
            rows = rows | beam.WindowInto(FixedWindows(100)) if windowed else rows
            _ = rows | WriteToFiles(str(tmp_path), "jsonl", shards=shards)

    write(2)
    write(2)
    with pytest.raises(
        Exception, match=r"has part-0000\d-of-00002.jsonl, of a write with shards=2: .* Give shards=2, "
    ):
        write(3)
    assert numbers(tmp_path) == Counter(range(9))
