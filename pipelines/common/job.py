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
from rmqio.command_line.arguments import add_name_server
from rmqio.command_line.exits import FAILED, WRONG_USAGE
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError, RmqioError, counted
from rmqio.interfaces import ClientFactory
from rmqio.pipelines.common.arguments import parse_start, parse_stop
from rmqio.runners.flags import wrong_argument
from rmqio.runners.options import strict_options
from rmqio.runners.program import count, count_written, failure_text, run_program
from rmqio.sending.failures import FailedMessage
from rmqio.skew import SkewReport, measure_shuffles
from rmqio.start import StartFrom


def make_parser(name: str, description: str, epilog: str, *, source: str, sink: str = "totals") -> Parser:
    """Return a parser with the options of every such job; `source` and `sink` say what the topics hold."""
    parser = Parser(prog=name, description=description, epilog=epilog)
    add = parser.add_argument
    add_name_server(parser)
    add("--source_topic", required=True, metavar="TOPIC", help=f"topic with the {source}")
    add("--sink_topic", required=True, metavar="TOPIC", help=f"topic for the {sink}; must exist")
    add("--consumer_group", metavar="GROUP", help="commit offsets for this group, for monitoring")
    add(
        "--start",
        type=parse_start,
        default=StartFrom.earliest(),
        metavar="WHERE",
        help="earliest (default), latest, timestamp:TIME or group[:earliest|latest|error]; for the first start only",
    )
    add(
        "--stop",
        type=parse_stop,
        metavar="WHERE",
        help="none (default), latest (what the topic holds when the job starts) or timestamp:TIME",
    )
    add(
        "--skew_report",
        action="store_true",
        help="at the end, show the heaviest keys of each shuffle and the load of the queues, with their keys as text",
    )
    add("-v", "--verbose", action="store_true", help="log what Beam does, and show tracebacks of failures")
    security.add_arguments(parser)
    return parser


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
    if wrong := wrong_argument(argv, parser.option_names):
        print(f"{parser.prog}: {wrong}", file=sys.stderr)
        return WRONG_USAGE
    arguments, rest = parser.parse_known_args(argv)
    try:
        found = strict_options(rest)
        if arguments.source_topic == arguments.sink_topic:
            raise LocalError(f"{arguments.source_topic!r} is both read and written, so the job would never end")
        secured = security.from_arguments(arguments)
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

    return run_program(parser.prog, found, measured, summary, security=secured, verbose=arguments.verbose)


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
