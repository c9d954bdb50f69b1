"""The job of a script: its statements that write, planned as the runner would, or run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

from rmqio import security
from rmqio.command_line.output import WRONG_USAGE
from rmqio.errors import LocalError, counted
from rmqio.runners.options import strict_options
from rmqio.sql.catalog.settings import options_of
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.pushdown import endless_reads
from rmqio.sql.resuming import keeps_checkpoint, obstacles
from rmqio.sql.scripts.script import Script
from rmqio.sql.values import in_zone

_ANY_SERVER: Final = "127.0.0.1:9876"
"""For a pipeline that is only shown: nothing connects."""


def run_job(script: Script, arguments: argparse.Namespace) -> int:
    """Runs the statements of a script that write, as one job, and returns its exit status."""
    from rmqio.runners.program import run_program
    from rmqio.sql.runtime.runners import how_it_runs

    try:
        options = _options(script, arguments)
    except SqlError as error:
        print(f"rmqio sql: {error}", file=sys.stderr, flush=True)
        return WRONG_USAGE

    def build(pipeline: Any) -> None:
        _add(script, arguments, pipeline)
        if arguments.explain:
            print(f"\n{how_it_runs(pipeline)}\n")

    return run_program("rmqio sql", options, build, summary, verbose=arguments.verbose)


def check(script: Script, arguments: argparse.Namespace, valid: int) -> int:
    """Plans the statements as the runner would; without one, as far as all runners agree. Returns the exit status.

    Args:
      valid: the exit status of valid statements.
    """
    try:
        if arguments.runner is None:
            from rmqio.sql.runtime.translation import check_plans

            with in_zone(script.settings.zone):
                check_plans(script.sinks, _connection(script, arguments), script.texts.error)
            if arguments.rest:  # a run would take the DirectRunner, which says what it does not use
                _report(strict_options(arguments.rest, runner="DirectRunner")).warn_of_options()
        else:
            report = _report(_options(script, arguments), lambda pipeline: _add(script, arguments, pipeline))
            report.check()
            report.warn_of_options()
    except (LocalError, ImportError, AttributeError, ValueError) as error:  # also a missing runner class
        print(f"rmqio sql: {error}", file=sys.stderr, flush=True)
        return WRONG_USAGE
    print(f"{arguments.file}: valid, {len(script.sinks)} INSERT INTO")
    return valid


def _report(options: Any, build: Callable[[Any], None] = lambda pipeline: None) -> Any:
    import apache_beam as beam

    from rmqio.runners.submission import report_of

    pipeline = beam.Pipeline(options=options)
    build(pipeline)
    return report_of(pipeline)


def _options(script: Script, arguments: argparse.Namespace) -> Any:
    """The options of the job's pipeline. Raises `LocalError` for flags that contradict the script, or are unknown."""
    from rmqio.runners.submission import ReportOptions
    from rmqio.sql.runtime.runners import check_signature, checkpoint_of

    runner = arguments.runner or "DirectRunner"
    endless = [] if arguments.stop is not None else endless_reads(script.sinks)
    flags = [*arguments.rest, *options_of(script.settings, runner, arguments.rest, endless)]
    options = strict_options(flags, runner=runner)
    if arguments.explain:
        options.view_as(ReportOptions).report = True
    elif (folder := checkpoint_of(options)) is not None:
        script.sinks = check_signature(folder, script.sinks, stores=not arguments.check)
    return options


def _connection(script: Script, arguments: argparse.Namespace) -> Any:
    from rmqio.sql.runtime.scans import Connection

    return Connection(
        name_server=arguments.name_server or (_ANY_SERVER if arguments.explain or arguments.check else None),
        security=security.from_arguments(arguments),
        start=arguments.start,
        stop=arguments.stop,
        idle_timeout_ms=script.settings.idle_ms or None,
        resumed_ms=None if keeps_checkpoint(script, arguments) or obstacles(script.sinks) else arguments.resume,
    )


def _add(script: Script, arguments: argparse.Namespace, pipeline: Any) -> None:
    from rmqio.sql.runtime.translation import Translation

    with in_zone(script.settings.zone):
        translation = Translation(pipeline, _connection(script, arguments), errors=script.texts.error)
        translation.add_all(script.sinks)


def summary(result: Any) -> str:
    """Returns the last line of a job, from its metrics."""
    from rmqio.runners.program import count, count_written

    failed = count(result, "rows_failed")
    return counted(count_written(result), "row") + " written" + (f", {failed} failed" if failed else "")
