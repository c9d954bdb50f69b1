"""Holds up a pipeline at a known message, so that a test can kill something in the middle."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Self

import apache_beam as beam

from rmqio.model import Record
from tests.helpers.waiting import until


class Hold:
    """An offset, at which a pipeline stops in each queue for as long as a file is there."""

    def __init__(self, file: Path, offset: int) -> None:
        self._file, self._offset = file, offset
        self.flags = (f"--hold={file}", f"--hold_at={offset}")

    def begin(self) -> Self:
        self._file.touch()
        return self

    def queues(self) -> int:
        """Returns how many queues are held."""
        return len(list(self._file.parent.glob(f"{self._file.name}.*")))

    def has_process(self) -> bool:
        """Returns whether a process that has been held is there: it goes on when it is released."""
        held = self._file.parent.glob(f"{self._file.name}.*")
        return any(Path("/proc", each.read_text()).exists() for each in held)

    def release(self) -> None:
        self._file.unlink()

    def wait(self, record: Record) -> Record:
        """Is called by the pipeline for each record."""
        self.wait_at(record.queue_id, record.queue_offset)
        return record

    def wait_at(self, queue_id: int, offset: int) -> None:
        if offset == self._offset and self._file.exists():
            self._file.with_suffix(f".{queue_id}").write_text(str(os.getpid()))
            until(lambda: not self._file.exists(), "the test to go on", still_s=240)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hold", type=Path)
    parser.add_argument("--hold_at", type=int)


def hold(records: beam.PCollection[Record], arguments: argparse.Namespace) -> beam.PCollection[Record]:
    """Adds the step, if the program has the flags: also where it is released, as what continues must have it, too."""
    if arguments.hold is None:
        return records
    wait = Hold(arguments.hold, arguments.hold_at).wait
    return records | "Hold" >> beam.Map(wait).with_output_types(Record)
