"""The common command line of the jobs."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from rmqio import security
from rmqio.command_line.output import FAILED, WRONG_USAGE
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError, RmqioError, counted
from rmqio.interfaces import ClientFactory
from rmqio.pipelines.common import command_lines
from rmqio.runners.options import strict_options
from rmqio.runners.program import count, count_written, failure_text, run_program
from rmqio.sending.batches import FailedMessage
from rmqio.skew import SkewReport, measure_shuffles


def run_job(
    parser: Parser,
    build: Callable[[beam.Pipeline, argparse.Namespace], None],
    argv: Sequence[str] | None,
    *,
    source: str,
    sink: str = "total",
    check: Callable[[PipelineOptions, argparse.Namespace], None] = lambda options, arguments: None,
) -> int:
    """Run the job of a command line and return the exit status. `source` and `sink` name what is read and written.

    `check` raises `LocalError` for bad options, and another `RmqioError` for servers that do not answer as they should.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        arguments, rest = command_lines.read(parser, argv)
        found = strict_options(rest)
        check(found, arguments)
    except LocalError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return WRONG_USAGE
    except RmqioError as error:
        print(f"{parser.prog}: {failure_text(error)}", file=sys.stderr)
        return FAILED

    def measured(pipeline: beam.Pipeline) -> None:
        build(pipeline, arguments)
        if arguments.skew_report:
            measure_shuffles(pipeline)

    def summary(result: Any) -> str:
        text = f"{counted(count(result, 'records_read'), source)} read, {counted(count_written(result), sink)} written"
        if letters := count(result, "dead_letters"):
            text = f"{text}, {counted(letters, 'dead letter')}"
        return f"{text}\n{SkewReport.of(result)}" if arguments.skew_report else text

    return run_program(
        parser.prog, found, measured, summary, security=security.from_arguments(arguments), verbose=arguments.verbose
    )


def where(arguments: argparse.Namespace, client_factory: ClientFactory | None = None) -> dict[str, Any]:
    """Return the arguments that tell reads and writes the cluster. `client_factory` replaces the clients in tests."""
    if client_factory is not None:
        return {"client_factory": client_factory}
    return {"name_server": arguments.name_server, "security": security.from_arguments(arguments)}


def id_of(*parts: Any) -> str:
    """Return the unique id of the message that these values identify."""
    text = json.dumps(parts, default=str, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest().upper()


def run_of(pipeline: beam.Pipeline) -> str:
    """Return the part of a total's id that identifies the run.

    It is random for a run that ends, since the group's next run makes other totals of the same keys and windows. It is
    empty for a stream, whose ids must stay the same when it resumes from its checkpoint.
    """
    return "" if pipeline.options.view_as(StandardOptions).streaming else uuid.uuid4().hex


def refuse(failed: FailedMessage) -> Any:
    """Fail the pipeline: a total that was not written must not be forgotten."""
    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")
