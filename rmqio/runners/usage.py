"""The help of programs that take their options from `rmqio.runners.options`, and what is wrong with unknown options."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Collection, Sequence
from typing import Final, NoReturn

from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    PipelineOptions,
    SparkRunnerOptions,
    StandardOptions,
)

from rmqio.errors import LocalError
from rmqio.hints import nearest
from rmqio.runners.beam.portable import add_arguments
from rmqio.runners.checkpoints import CheckpointOptions
from rmqio.runners.submission import ReportOptions

_CUTOFF: Final = 0.85
"""Below it, an option is not taken for a misspelt one: it may belong to a class that the program defines later."""
_COMMON: Final = (StandardOptions, ReportOptions)
_OF_RUNNERS: Final[dict[str, tuple[str, ...]]] = {
    "rmqio.runners.spark.SparkRunner": (
        "rmqio.runners.spark.options.SparkOptions",
        "rmqio.runners.spark.options.StreamOptions",
    ),
    "rmqio.runners.flink.FlinkRunner": ("rmqio.runners.flink.options.FlinkOptions",),
}
_OF_BEAM: Final[dict[str, tuple[type[PipelineOptions], ...]]] = {
    "rmqio.runners.spark.SparkRunner": (SparkRunnerOptions, CheckpointOptions),
    "rmqio.runners.flink.FlinkRunner": (CheckpointOptions, FlinkRunnerOptions),
    "rmqio.runners.direct.DirectRunner": (DirectOptions,),
}


class LeniencyOptions(PipelineOptions):
    """`--allow_unknown_options`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--allow_unknown_options",
            action="store_true",
            default=False,
            help="Ignore options that are unknown, as Beam does, even if they look like misspelt ones.",
        )


def show_help(runner: str) -> None:
    """Prints the options of a runner (its full name). Beam's other options, of which there are hundreds, also work."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options]",
        description=f"Options of pipelines on {runner.rpartition('.')[2]}; --runner=NAME --help lists those of another "
        "runner. Beam's other options also work.",
        add_help=False,
        allow_abbrev=False,
    )
    for kind in (*_COMMON, *_OF_BEAM.get(runner, ()), *map(_imported, _OF_RUNNERS.get(runner, ())), LeniencyOptions):
        add_arguments(kind, parser.add_argument_group(kind.__name__))
    parser.print_help()


def parse(argv: Sequence[str]) -> tuple[list[str], frozenset[str]]:
    """Returns the arguments that no class of options takes, and the options of all classes.

    Raises `LocalError` for a value that is missing or wrong. Beam's own parser ends the program then, below its usage
    of a hundred lines.
    """
    parsers: list[argparse.ArgumentParser] = []

    def take(parser: argparse.ArgumentParser) -> None:
        vars(parser)["error"] = lambda _: None  # Beam parses no arguments: a program's required options are missing
        parsers.append(parser)

    PipelineOptions([]).get_all_options(add_extra_args_fn=take)
    (parser,) = parsers
    vars(parser)["error"] = _refuse
    try:
        parsed, unparsed = parser.parse_known_args(argv)
    except LocalError:
        raise
    except Exception as error:  # of an option that argparse does not read, such as --gcs_custom_audit_entries
        raise LocalError(f"the value of an option of Beam is wrong: {error}") from error
    return [each for each in unparsed if each != "--"], frozenset(f"--{name}" for name in vars(parsed))


def _refuse(message: str) -> NoReturn:
    raise LocalError(" ".join(message.split()))


def misspelt(unknown: Collection[str], known: Collection[str]) -> str | None:
    """Returns what is wrong with the first unknown option that is near a known one."""
    for flag in unknown:
        if near := nearest(flag, known, cutoff=_CUTOFF):
            return f"unknown option {flag}: did you mean {near}? (--allow_unknown_options ignores unknown options)"
    return None


def _imported(path: str) -> type[PipelineOptions]:
    module, _, name = path.rpartition(".")
    found: type[PipelineOptions] = getattr(importlib.import_module(module), name)
    return found
