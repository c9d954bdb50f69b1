"""Compares what a pipeline needs with what its runner offers, before it runs: refuses, warns, or shows a table."""

from __future__ import annotations

import argparse
import contextlib
import logging
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from apache_beam.options.pipeline_options import PipelineOptions

from rmqio.errors import LocalError
from rmqio.interfaces import IDS
from rmqio.runners.beam.portable import portable_form
from rmqio.runners.capabilities import TABLE, Cell, Mode, Requirement, Verdict
from rmqio.runners.errors import NotReady
from rmqio.runners.requirements import random_ids, requirements_of

_LOGGER: Final = logging.getLogger("rmqio.runners")
_WIDTHS: Final = (26, 26, 44)
_MOST_NAMES: Final = 4
NO_CHECKPOINT_DIR: Final = "no --checkpoint_dir: a restart starts from scratch"


class ReportOptions(PipelineOptions):
    """`--report`, for programs that end with `rmqio.runners.program.run_program`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--report",
            action="store_true",
            default=False,
            help="Show what the pipeline needs and what the runner does with it, without running it.",
        )


class Refused(LocalError):
    """The runner would lose data of this pipeline, or wait forever, or cannot do what its options say."""


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turns a local error before anything runs into a refusal; a worker's error of that kind is not one."""
    try:
        yield
    except (Refused, NotReady):
        raise
    except LocalError as error:
        raise Refused(str(error)) from None  # the text would be shown twice


class Line(NamedTuple):
    """A need of a pipeline, and how the runner meets it."""

    need: Requirement
    where: Sequence[str]
    """The transforms that have it."""
    cell: Cell

    def __str__(self) -> str:
        return f"{self.need.value} ({_listed(self.where)}): {self.cell.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """The report on a pipeline in a mode of a runner."""

    mode: Mode
    lines: tuple[Line, ...]
    of_options: tuple[str, ...]
    """Advice about the options. Their runner logs it by itself when it runs."""
    of_writes: tuple[str, ...] = ()
    """The same about its writes, which log it when they are applied."""

    @property
    def refused(self) -> list[Line]:
        return [line for line in self.lines if line.cell.verdict is Verdict.REFUSED]

    @property
    def warnings(self) -> list[Line]:
        return [line for line in self.lines if line.cell.verdict is Verdict.WARNED]

    def check(self) -> None:
        """Logs each warning. Raises `Refused`."""
        if self.refused:
            raise Refused(f"{self.mode.value} cannot run this pipeline: {'; '.join(map(str, self.refused))}")
        for line in self.warnings:
            _LOGGER.warning("%s: %s", self.mode.value, line)

    def warn_of_options(self) -> None:
        """Logs what is to be said of the options, for runners that say it nowhere else."""
        for said in self.of_options:
            _LOGGER.warning("%s: %s", self.mode.value, said)

    def table(self) -> str:
        """Returns a table for people: a row per need, and a sentence per option."""
        rows: list[tuple[str, str, str]] = [("needed", "by", f"on {self.mode.value}")]
        rows += [(line.need.value, _listed(line.where), _told(line.cell)) for line in self.lines]
        if not self.lines:
            rows.append(("nothing special", "", Verdict.YES.value))
        shown = [text for row in rows for text in _wrapped(row)]
        rule = "  ".join("-" * width for width in _WIDTHS)
        width = sum(_WIDTHS) + 2 * (len(_WIDTHS) - 1)
        said = (*self.of_options, *self.of_writes)
        options = [textwrap.fill(f"warned: {each}", width, subsequent_indent="  ") for each in said]
        return "\n".join([shown[0], rule, *shown[1:], *(["", *options] if options else [])])


def compare(
    pipeline: Any, mode: Mode, *, of_options: Sequence[str] = (), instead: Mapping[Requirement, Cell] | None = None
) -> Report:
    """Returns the report on a pipeline in Beam's portable form. `instead`: cells that options have changed."""
    cells = {need: (instead or {}).get(need, row[mode]) for need, row in TABLE.items()}
    lines = (Line(need, where, cells[need]) for need, where in requirements_of(pipeline).items())
    return Report(
        mode,
        tuple(line for line in lines if line.cell.verdict is not Verdict.NONE),
        tuple(of_options),
        tuple(f"{IDS}: {said} ({_listed(names)})" for said, names in random_ids(pipeline).items()),
    )


def report_of(pipeline: Any) -> Report:
    """The report of a pipeline that has not been run, by its own runner. Raises `LocalError` if that makes none."""
    runner = pipeline.runner
    if not hasattr(runner, "report"):
        raise LocalError(
            f"--report does not support {type(runner).__name__}: use DirectRunner, SparkRunner or FlinkRunner"
        )
    found: Report = runner.report(portable_form(pipeline), pipeline.options)
    return found


def _told(cell: Cell) -> str:
    return ": ".join(filter(None, (cell.verdict.value, cell.text)))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *([f"{more} more"] if more > 0 else [])])


def _wrapped(row: Sequence[str]) -> list[str]:
    """Returns the lines of a row, with its cells wrapped side by side."""
    cells = [textwrap.wrap(text, width) or [""] for text, width in zip(row, _WIDTHS, strict=True)]
    height = max(map(len, cells))
    padded = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    return [
        "  ".join(f"{text:{width}}" for text, width in zip(line, _WIDTHS, strict=True)).rstrip()
        for line in zip(*padded, strict=True)
    ]
