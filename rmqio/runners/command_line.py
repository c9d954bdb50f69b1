"""`Program`: the command line of a program that runs one pipeline, from a topic to a topic, on any runner."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqio import security
from rmqio.command_line.arguments import (
    add_name_server,
    parse_group,
    parse_topic,
    require_usable,
    start_parser,
    stop_parser,
)
from rmqio.command_line.output import FAILED
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError, RmqioError, counted
from rmqio.interfaces import ClientFactory
from rmqio.options import parse_name_server
from rmqio.runners.options import connects_from_here, known_flags, known_runner, strict_options, wrong_argument
from rmqio.start import TIME_HELP, StartFrom

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

_EPILOG: Final = """\
All other options go to Beam and its runner, such as --streaming --checkpoint_dir=/var/lib/job on Spark. --report shows
how the runner handles the pipeline, without running it.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""
_WRITTEN: Final = ("sink_topic", "dead_letter_topic", "audit_topic")


class Program:
    """A program that reads a topic, runs a pipeline, and writes a topic, with the same options on every runner.

    Its module checks the command line before it imports Beam, which takes seconds, and runs the pipeline at its end:

        program = Program(__file__, __doc__, source="order", sink="total")
        program.parser.add_argument("--window_s", type=int, default=60)
        if __name__ == "__main__":
            program.check()

        import apache_beam as beam
        from rmqio import ReadFromRocketMQ, WriteToRocketMQ

        def build(pipeline, options):
            orders = pipeline | ReadFromRocketMQ(**options.read)
            ...
            totals | WriteToRocketMQ(**options.write)

        if __name__ == "__main__":
            sys.exit(program.run(build))

    Args:
      file: the program's file; its name begins errors.
      doc: what the program does, for `--help`.
      source, sink: what a message of each topic is, such as "order".
      stateful: whether the pipeline keeps state, of which a group's offsets say nothing: it starts at the earliest
        message. Others start at the offsets of `--consumer_group`, if it has any.
      dead_letters: which messages go to `--dead_letter_topic`, for `--help`. None: the program has no such option.
      write: the label of the write whose messages are counted at the end, if the pipeline has others, such as an audit.
    """

    def __init__(
        self,
        file: str,
        doc: str | None,
        *,
        source: str = "message",
        sink: str = "message",
        stateful: bool = False,
        dead_letters: str | None = None,
        write: str = "",
    ) -> None:
        self.name = Path(file).name
        self._source, self._sink, self._stateful, self._dead_letters = source, sink, stateful, dead_letters
        self._write = write
        self._checks: list[Callable[[argparse.Namespace], object]] = []
        self.parser = Parser(prog=self.name, description=doc, epilog=_EPILOG)
        """An `argparse.ArgumentParser`, for options of the program's own."""
        self.parser.known_elsewhere = known_flags
        self._add_arguments()

    def _add_arguments(self) -> None:
        add = self.parser.add_argument
        add(
            "--runner",
            type=known_runner,
            default="DirectRunner",
            metavar="NAME",
            help="DirectRunner (default), FlinkRunner, SparkRunner ...",
        )
        add_name_server(self.parser)
        source, sink = _plural(self._source), _plural(self._sink)
        add("--source_topic", type=parse_topic, required=True, metavar="TOPIC", help=f"topic with the {source}")
        add("--sink_topic", type=parse_topic, required=True, metavar="TOPIC", help=f"topic for the {sink}; must exist")
        if self._dead_letters is not None:
            letters = f"topic for {self._dead_letters}; must exist"
            add("--dead_letter_topic", type=parse_topic, metavar="TOPIC", help=letters)
        starts = "for monitoring" if self._stateful else "and start from them"
        add(
            "--consumer_group",
            type=parse_group,
            metavar="GROUP",
            help=f"commit offsets for this group, {starts}",
        )
        default = "earliest" if self._stateful else "group with --consumer_group, else earliest"
        add(
            "--start",
            type=start_parser("earliest", "latest", "group", "group:RESET", "timestamp:TIME"),
            metavar="WHERE",
            help="earliest, latest, timestamp:TIME, or group[:earliest|latest|error]: the group's offsets, and where to"
            f" start if it has none (group alone: earliest); for the first start only; default: {default}",
        )
        add(
            "--stop",
            type=stop_parser("none", "latest", "timestamp:TIME"),
            metavar="WHERE",
            help=f"none (default), latest (what the topic holds when the job starts) or timestamp:TIME; {TIME_HELP}",
        )
        add(
            "--skew_report",
            action="store_true",
            help="at the end, show the heaviest keys of each shuffle and the load of the queues, keys as text",
        )
        add("--check", action="store_true", help="only check the command line")
        add("-v", "--verbose", action="store_true", help="log what Beam does, and show tracebacks of failures")
        security.add_arguments(self.parser)

    def add_check(self, check: Callable[[argparse.Namespace], object]) -> None:
        """Adds a check of the options that needs no Beam. It raises `LocalError`."""
        self._checks.append(check)

    def check(self, argv: Sequence[str] | None = None) -> None:
        """Ends the program with status 2 if its command line is wrong, as far as that can be told without Beam.

        With `--check` it ends in any case, with status 0 if nothing is wrong, not even with Beam's options.
        """
        options = self._parsed(argv)
        if options.check:
            self._beam_options(options)
            sys.exit(0)

    def options(
        self, argv: Sequence[str] | None = None, *, client_factory: ClientFactory | None = None
    ) -> argparse.Namespace:
        """Returns the options. Wrong usage and `--help` end the program, with status 2 or 0.

        These are keyword arguments of transforms: `read` of `ReadFromRocketMQ`, `write` of `WriteToRocketMQ`, `cluster`
        of all that connect to the cluster, and `dead_letters` of all that have a `dead_letter_topic`.

        Args:
          argv: None: those of this process.
          client_factory: replaces the clients, in tests.
        """
        options = self._parsed(argv)
        cluster: dict[str, Any] = {"name_server": options.name_server, "security": options.security}
        if client_factory is not None:
            cluster = {"client_factory": client_factory}
        topic = getattr(options, "dead_letter_topic", None)
        letters = {} if topic is None else {"dead_letter_topic": topic}
        options.cluster = cluster
        options.dead_letters = {**letters, **cluster} if letters else {}
        options.read = {
            "topic": options.source_topic,
            "consumer_group": options.consumer_group,
            "start": options.start,
            "stop": options.stop,
            **letters,
            **cluster,
        }
        options.write = {"topic": options.sink_topic, **cluster}
        return options

    def run(
        self,
        build: Callable[[beam.Pipeline, argparse.Namespace], object],
        argv: Sequence[str] | None = None,
        *,
        summary: Callable[[Any], str] | None = None,
    ) -> int:
        """Builds and runs the pipeline, waits for its end, prints a line, and returns the exit status.

        Args:
          build: adds the transforms to a pipeline, from the options. What it raises as `LocalError` is wrong usage.
          argv: None: those of this process.
          summary: makes the line from the result. None: how many messages were read, written, and left out.
        """
        from rmqio.runners.program import run_program

        options = self.options(argv)
        beam_options = self._beam_options(options)

        def built(pipeline: beam.Pipeline) -> None:
            build(pipeline, options)
            if options.skew_report:
                from rmqio.skew import measure_shuffles

                measure_shuffles(pipeline)

        def last(result: Any) -> str:
            line = (summary or self.summary)(result)
            if not options.skew_report:
                return line
            from rmqio.skew import SkewReport

            return f"{line}\n{SkewReport.of(result)}"

        return run_program(self.name, beam_options, built, last, security=options.security, verbose=options.verbose)

    def _beam_options(self, options: argparse.Namespace) -> PipelineOptions:
        try:
            return strict_options(options.rest, runner=options.runner)
        except LocalError as error:
            self.parser.error(str(error))

    def _parsed(self, argv: Sequence[str] | None) -> argparse.Namespace:
        argv = sys.argv[1:] if argv is None else argv
        if wrong := wrong_argument(argv, self.parser.option_names):
            self.parser.error(wrong)
        options: argparse.Namespace
        options, options.rest = self.parser.parse_known_args(argv)
        try:
            self._require(options)
        except LocalError as error:
            self.parser.error(str(error))
        except RmqioError as error:  # a server does not answer
            print(f"{self.name}: {error}", file=sys.stderr)
            sys.exit(FAILED)
        return options

    def _require(self, options: argparse.Namespace) -> None:
        if options.source_topic in {getattr(options, name, None) for name in _WRITTEN}:
            raise LocalError(f"{options.source_topic!r} is both read and written, so the job would never end")
        parse_name_server(options.name_server)
        if options.start is None:
            from_group = options.consumer_group is not None and not self._stateful
            options.start = StartFrom.group_offsets(reset="earliest") if from_group else StartFrom.earliest()
        if options.start.needs_group and options.consumer_group is None:
            raise LocalError("--start=group needs --consumer_group, the group at whose offsets to start")
        options.security = security.from_arguments(options)
        is_report = any(argument.startswith("--report") for argument in options.rest)
        if connects_from_here(options.runner) and not is_report:
            require_usable(options.security)
        for check in self._checks:
            check(options)

    def summary(self, result: Any) -> str:
        """Returns the last line of a run: how many messages were read, written, and left out, by its metrics."""
        from rmqio.runners.program import count, count_written

        parts = [
            f"{counted(count(result, 'records_read'), self._source)} read",
            f"{counted(count_written(result, step=self._write), self._sink)} written",
        ]
        if letters := count(result, "dead_letters"):
            parts.append(counted(letters, "dead letter"))
        elif failures := count(result, "decode_failures"):
            parts.append(f"{failures:,} left out")
        return ", ".join(parts)


def _plural(noun: str) -> str:
    return counted(2, noun).removeprefix("2 ")
