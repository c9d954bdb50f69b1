"""Pipeline options with the runner resolved by name."""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from rmqio.errors import LocalError
from rmqio.runners.errors import NotReady

if TYPE_CHECKING:  # Beam in functions only: Spark's workers import this package on their way to its modules
    from apache_beam.options.pipeline_options import PipelineOptions

# Beam 2.77's own DirectRunner tries Prism first, which downloads a binary, and falls back to other runners depending
# on what the pipeline holds. Ours is always the in-process FnApiRunner, and needs no network.
IN_PROCESS_RUNNER: Final = "rmqio.runners.direct.DirectRunner"
FLINK_RUNNER: Final = "rmqio.runners.flink.FlinkRunner"
PORTABLE_SPARK_RUNNER: Final = "apache_beam.runners.portability.spark_runner.SparkRunner"
SPARK_RUNNER: Final = "rmqio.runners.spark.SparkRunner"

_OURS: Final = {
    "DirectRunner": IN_PROCESS_RUNNER,
    "FlinkRunner": FLINK_RUNNER,
    "SparkRunner": SPARK_RUNNER,
    "PortableSparkRunner": PORTABLE_SPARK_RUNNER,
}
_HELP: Final = ("-h", "--help")
# Parts of the names of runners that use a job server.
_PORTABLE: Final = ("FlinkRunner", "PortableRunner", "KafkaStreamsRunner", "runners.portability.spark_runner")


def options(argv: Sequence[str] | None = None, **kwargs: Any) -> PipelineOptions:
    """Returns Beam's `PipelineOptions` with `--runner` resolved; other names are left to Beam.

    `DirectRunner` (also the default) is Beam's in-process FnApiRunner; `FlinkRunner` is Beam's with a job server of
    ours; `SparkRunner` is ours, executed by PySpark. They check a pipeline before they run it, and `--report` shows
    what they find. Beam's own Spark runner, with a Java job server, is `PortableSparkRunner`. Names ignore case and can
    omit "Runner", as in Beam. Other runners of Beam and names with dots pass through.

    Args:
      argv: command-line arguments; None: those of this process.
      kwargs: options by name, which override `argv`, e.g. `streaming=True`. `runner="FlinkRunner"` is for an `argv`
        that names no runner.

    Raises:
      LocalError: the runner is unknown, or not available here; the value of an option is missing or wrong; or an
        option is unknown and similar to a known one (`--allow_unknown_options` leaves that to Beam, which logs a
        warning and goes on).
      SystemExit: `--help`, which lists the runner's options.
    """
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    from rmqio.runners import usage  # its options are known with every runner
    from rmqio.runners.beam.speedups import speed_up_beam
    from rmqio.runners.beam.views import ViewedOptions
    from rmqio.runners.tracebacks.uncaught import show_users_frames

    show_users_frames()
    speed_up_beam()
    arguments = sys.argv[1:] if argv is None else list(argv)
    wants_help = any(each in _HELP for each in arguments)
    flags = [each for each in arguments if each not in _HELP]
    usage.parse(flags)  # before the runner is known, whose options are known with it
    if "runner" in kwargs and PipelineOptions(flags).view_as(StandardOptions).runner is not None:
        del kwargs["runner"]  # who calls the program has the last word
    found: PipelineOptions = ViewedOptions(flags, **kwargs)
    standard = found.view_as(StandardOptions)
    if standard.runner is None or isinstance(standard.runner, str):
        standard.runner = runner_path(standard.runner or "DirectRunner")
    if wants_help:
        usage.show_help(str(standard.runner))
        raise SystemExit(0)
    if not found.view_as(usage.LeniencyOptions).allow_unknown_options:
        unknown = [each for each in unknown_flags(found) if each.startswith("--")]
        if unknown and (wrong := usage.misspelt(unknown, usage.parse(flags)[1])):
            raise LocalError(wrong)
    return found


def strict_options(argv: Sequence[str], *, runner: str | None = None) -> PipelineOptions:
    """Returns `options` of a program that has taken its own ones. Also raises `LocalError` for an unknown argument."""
    found = options(argv, runner=runner or "DirectRunner")
    if unknown := unknown_flags(found):
        raise LocalError(f"unknown argument {unknown[0]!r}")
    return found


def runner_path(name: str) -> str:
    """Returns the fully qualified name, or Beam's name, of the runner that a user names. Raises `LocalError`."""
    path = _path_of(name)
    if path == SPARK_RUNNER:
        _require_spark_runner()
    return path


def known_runner(name: str) -> str:
    """Returns the name of a runner as it is given. A type of argparse, which needs no import of Beam."""
    try:
        _path_of(name)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def connects_from_here(runner: object) -> bool:
    """Returns whether this process connects to RocketMQ: of Flink, workers alone do, perhaps on other machines.

    `runner`: the name as a user gives it or its path; also None, or a runner.
    """
    return not isinstance(runner, str) or _path_of(runner) != FLINK_RUNNER


def _path_of(name: str) -> str:
    if "." in name:
        return name
    from rmqio.runners.flags import beams_runners

    names = {known.lower(): known for known in (*beams_runners(), *_OURS)}
    known = names.get(name.lower()) or names.get(f"{name.lower()}runner")
    if known is None:
        nearest = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.0)[0]
        raise LocalError(
            f"runner {name!r} is unknown; the nearest known one is {names[nearest]!r}. "
            f"Known runners are {', '.join(_OURS)}, Beam's other runners and fully qualified class names"
        )
    return _OURS.get(known, known)


def unknown_flags(found: PipelineOptions) -> list[str]:
    """Returns the arguments that no option class knows, so that a program can refuse them: Beam only logs them.

    They are words that are no value of an option, and options without their values, such as `--stpo`. Not those options
    for runners with a job server that we do not know: it can know options that Beam's Python side does not.

    Raises:
      LocalError: the value of an option is missing or wrong.
    """
    from apache_beam.options.pipeline_options import FlinkRunnerOptions, PortableOptions, StandardOptions

    from rmqio.runners.beam.portable import given_flags

    if not given_flags(found):
        return []
    from rmqio.runners import usage
    from rmqio.runners.flags import stray

    runner = str(found.view_as(StandardOptions).runner)
    known: Set[str] = frozenset()
    is_ours = runner == FLINK_RUNNER and not (
        found.view_as(PortableOptions).job_endpoint or found.view_as(FlinkRunnerOptions).flink_job_server_jar
    )
    if is_ours:
        import rmqio.runners.flink.options  # noqa: F401 - its flags are known then
        from rmqio.runners.flink.known import JOB_SERVER_OPTIONS

        known = JOB_SERVER_OPTIONS
    unparsed, _ = usage.parse(given_flags(found))
    words = stray(unparsed)
    if not is_ours and any(name in runner for name in _PORTABLE):
        return words
    flags = {each.partition("=")[0] for each in unparsed if each.startswith("-") and each not in words}
    return [*words, *sorted(each for each in flags if each.removeprefix("--") not in known)]


def _require_spark_runner() -> None:
    try:
        module, _, name = SPARK_RUNNER.rpartition(".")
        getattr(importlib.import_module(module), name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyspark", "py4j", "pandas", "pyarrow"):
            raise
        raise NotReady(f"SparkRunner needs {package}: pip install 'rmqio[spark]'") from None
