"""Runs a pipeline as a Unix program: exit statuses, one line on stderr instead of a traceback, counts from metrics."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from rmqio.command_line.arguments import require_usable
from rmqio.command_line.output import FAILED, INTERRUPTED, OK, WRONG_USAGE
from rmqio.errors import LocalError, RmqioError
from rmqio.runners.errors import PipelineFailed
from rmqio.runners.options import connects_from_here
from rmqio.runners.submission import Refused, ReportOptions, report_of
from rmqio.security import UNSECURED, Security

# How our errors look in a runner's text about a worker's failure, and what Beam appends.
_OURS: Final = re.compile(r"^(?:.*\s)?rmqio\.(?:\w+\.)*\w+: (.+)$", re.MULTILINE)
_RAISED: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?$", re.MULTILINE)
"""The line of an error in a traceback: the next lines of its text say less, such as SQLAlchemy's link."""
_WHERE: Final = re.compile(r" \[while running '.*", re.DOTALL)


def run_program(
    name: str,
    options: PipelineOptions,
    build: Callable[[beam.Pipeline], None],
    summary: Callable[[Any], str],
    *,
    security: Security = UNSECURED,
    verbose: bool = False,
    prints_data: bool = False,
) -> int:
    """Build and run a pipeline, wait for its end, print the summary of its result, and return the exit status.

    If the pipeline `prints_data`, the summary goes to stderr: stdout is for another program.

    With `--report`, it only builds the pipeline and prints the runner's report. Else, credentials and files of TLS that
    cannot be read are told first, if this process connects.

    Failures that a user can fix are one line on stderr; `verbose` adds the traceback. Others (bugs) propagate. On
    Ctrl-C, a job that runs elsewhere is cancelled.
    """
    set_up_logging(verbose)
    is_report = options.view_as(ReportOptions).report
    try:
        if not is_report and connects_from_here(options.view_as(StandardOptions).runner):
            require_usable(security)
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        if is_report:
            return _report(name, pipeline)
    except (LocalError, ImportError, AttributeError, ValueError) as error:  # also a missing runner class
        return _end(name, WRONG_USAGE, str(error), verbose=verbose)
    except RmqioError as error:  # a server does not answer
        return _end(name, FAILED, failure_text(error), verbose=verbose)
    result = None
    try:
        result = pipeline.run()
        state = result.wait_until_finish()
    except KeyboardInterrupt:
        if result is not None:
            with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: do not wait
                result.cancel()
        return _end(name, INTERRUPTED, "interrupted")
    except Refused as error:
        return _end(name, WRONG_USAGE, str(error), verbose=verbose)
    except (RmqioError, RuntimeError) as error:
        if str(error).startswith("KeyboardInterrupt"):  # Beam: Ctrl-C inside a DoFn of the in-process runner
            return _end(name, INTERRUPTED, "interrupted")
        return _end(name, FAILED, failure_text(error), verbose=verbose)
    if state is not None and state != PipelineState.DONE:
        return _end(name, FAILED, f"the pipeline ended in state {state}")
    print(f"{name}: {summary(result)}", file=sys.stderr if prints_data else sys.stdout, flush=True)
    return OK


def _report(name: str, pipeline: beam.Pipeline) -> int:
    report = report_of(pipeline)
    print(report.table(), flush=True)
    return WRONG_USAGE if report.refused else OK


def set_up_logging(verbose: bool) -> None:
    """Log warnings on stderr; with `verbose`, also what Beam does."""
    logging.basicConfig()
    logging.getLogger().setLevel(logging.INFO if verbose else logging.WARNING)
    # Beam logs each failure of a DoFn with its traceback, in several places, and then raises it as well.
    for name in ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker"):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.removeFilter(_is_no_message_of_a_job)
        if not verbose:
            handler.addFilter(_is_no_message_of_a_job)


def _is_no_message_of_a_job(record: logging.LogRecord) -> bool:
    """Drop a job server's messages about a failed job: Beam logs them without a logger's name, and raises them too."""
    return not (record.name == "root" and record.module == "portable_runner")


def failure_text(error: Exception) -> str:
    """Return the line that explains a failure.

    A failure in a worker arrives as our error with text that Beam appends, or as a `RuntimeError` of which only the
    text says what it was: with the error's full name, in the first line of `PipelineFailed`, in the last line of a
    traceback, or deep in a runner's report.
    """
    if isinstance(error, RmqioError):
        return " ".join(_WHERE.sub("", str(error)).split())  # a broker's remark may have several lines
    ours: list[str] = _OURS.findall(str(error))
    if ours:
        is_first = isinstance(error, PipelineFailed) and _OURS.match(str(error))  # below it are its causes
        return _WHERE.sub("", ours[0 if is_first else -1])
    lines = _RAISED.findall(str(error)) or [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[-1] if lines else type(error).__name__} (-v shows more)"


def count(result: Any, name: str, *, step: str = "") -> int:
    """Return the sum of a counter over the steps whose label contains `step`; runners spell labels differently."""
    found = result.metrics().query(MetricsFilter().with_name(name))["counters"]
    wanted = _plain(step)
    return sum((counter.result or 0) for counter in found if wanted in _plain(counter.key.step))


def count_written(result: Any, *, step: str = "") -> int:
    """Return how many messages were sent, without dead letters, over the same steps as `count`."""
    sent, letters = (count(result, name, step=step) for name in ("messages_sent", "dead_letters"))
    return sent - letters


def _plain(label: str) -> str:
    return re.sub(r"[^A-Za-z]+", "-", label)


def _end(name: str, status: int, text: str, *, verbose: bool = False) -> int:
    if verbose:
        traceback.print_exc()
    print(f"{name}: {text}", file=sys.stderr, flush=True)
    return status
