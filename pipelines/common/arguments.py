"""The command line of `province.py`: its options, its `--help`, and its checks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqio import security
from rmqio.command_line.arguments import (
    add_name_server,
    parse_group,
    parse_topic,
    require_usable,
    start_parser,
    stop_parser,
)
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError
from rmqio.options import parse_name_server
from rmqio.runners.options import connects_from_here, known_flags, known_runner, strict_options, wrong_argument
from rmqio.security import UNSECURED, Security
from rmqio.start import TIME_HELP, StartFrom, StopAt
from rmqio.topics import validate_group, validate_topic

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_DESCRIPTION: Final = """\
Read {"id", "address"} as JSON from one RocketMQ topic, extract the province from each Chinese address, and write
{"id", "province"} to another topic. The pipeline runs until it is interrupted, unless --stop limits the input.
"""

_EPILOG: Final = """\
All other options go to Beam and its runner, e.g. --flink_master=host:8081 --checkpointing_interval=10000, or
--runner=SparkRunner --streaming --checkpoint_dir=/var/lib/provinces, which resumes from there after a restart.
--report shows how the runner handles the pipeline, without running it.

An address begins with its province ("浙江省杭州市西湖区...", also "浙江杭州市...", "中国 浙江省 ..."). A message is bad
if it is not JSON, has no id or no address, or if its address names no province. Bad messages go to the dead-letter
topic; without one, they are left out, counted and logged.

Each written message carries the unique id of its source message. Delivery is at least once; with --exactly_once, it is
exactly once for every consumer of the sink topic.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted

example: province.py --name_server=127.0.0.1:9876 --source_topic=addresses --sink_topic=provinces --stop=latest
"""


@dataclass(frozen=True, slots=True)
class ProvinceOptions:
    """The settings of `build`.

    Args:
      source_topic, sink_topic: the topics of addresses and of provinces. Raises `LocalError` if they are the same.
      name_server: None: the environment variable NAMESRV_ADDR.
      consumer_group: the group whose offsets are committed, and are the default start.
      start: None: the group's offsets, or the earliest message if it has none; without a group, the earliest message.
      stop: None: the pipeline never ends.
      exactly_once: the group that keeps the position in the sink; None: writes are at least once.
      dead_letter_topic: the topic for bad input; None: bad input is left out, counted and logged.
      audit_topic: the topic for sketches of what goes through, for `rmqio audit`; None: there are none.
      security: credentials, TLS, and the addresses that may be used.
    """

    source_topic: str
    sink_topic: str
    name_server: str | None = None
    consumer_group: str | None = None
    start: StartFrom | None = None
    stop: StopAt | None = None
    dead_letter_topic: str | None = None
    audit_topic: str | None = None
    exactly_once: str | None = None
    security: Security = UNSECURED

    def __post_init__(self) -> None:
        for topic in (self.source_topic, self.sink_topic, self.dead_letter_topic, self.audit_topic):
            if topic is not None:
                validate_topic(topic)
        if self.source_topic in (self.sink_topic, self.dead_letter_topic, self.audit_topic):
            raise LocalError(f"{self.source_topic!r} is both read and written, so the job would never end")
        if self.consumer_group is not None:
            validate_group(self.consumer_group)
        if self.start is not None and self.start.needs_group and self.consumer_group is None:
            raise LocalError("starting at a group's offsets needs --consumer_group")
        if self.start is None:
            default = StartFrom.group_offsets(reset="earliest") if self.consumer_group else StartFrom.earliest()
            object.__setattr__(self, "start", default)


class Arguments(NamedTuple):
    """A parsed command line."""

    province: ProvinceOptions
    beam: PipelineOptions
    verbose: bool


parse_start = start_parser("earliest", "latest", "group", "group:RESET", "timestamp:TIME")
parse_stop = stop_parser("none", "latest", "timestamp:TIME")


def make_parser() -> Parser:
    """Return the parser, without the options that go to Beam."""
    parser = Parser(prog="province.py", description=_DESCRIPTION, epilog=_EPILOG)
    parser.known_elsewhere = known_flags
    add = parser.add_argument
    add(
        "--runner",
        type=known_runner,
        default="DirectRunner",
        metavar="NAME",
        help="DirectRunner (default), FlinkRunner, SparkRunner ...",
    )
    add_name_server(parser)
    add("--source_topic", type=parse_topic, required=True, metavar="TOPIC", help="topic with the addresses")
    add("--sink_topic", type=parse_topic, required=True, metavar="TOPIC", help="topic for the provinces; must exist")
    add("--dead_letter_topic", type=parse_topic, metavar="TOPIC", help="topic for bad input; must exist")
    add(
        "--audit_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="count what is read and what has a province, so that `rmqio audit` finds where a message was lost; must"
        " exist",
    )
    add(
        "--consumer_group", type=parse_group, metavar="GROUP", help="commit offsets for this group, and start from them"
    )
    add(
        "--start",
        type=parse_start,
        metavar="WHERE",
        help="earliest, latest, timestamp:TIME, or group[:earliest|latest|error]: the group's offsets, and where to"
        " start if it has none (group alone: earliest); default: group with --consumer_group, else earliest",
    )
    add(
        "--stop",
        type=parse_stop,
        metavar="WHERE",
        help=f"none (default), latest (what the topic holds when the job starts) or timestamp:TIME; {TIME_HELP}",
    )
    add(
        "--exactly_once",
        type=parse_group,
        metavar="GROUP",
        help="write nothing twice: look up in the sink topics what a failed or killed run has sent, from the offsets of"
        " this group on; no other job may use the group",
    )
    add("-v", "--verbose", action="store_true", help="log what Beam and the runner do, and show tracebacks of failures")
    security.add_arguments(parser)
    return parser


def read(argv: Sequence[str]) -> tuple[ProvinceOptions, argparse.Namespace, list[str]]:
    """Return the settings, all options, and what is left for Beam, without it. Wrong usage ends the program."""
    parser = make_parser()
    if wrong := wrong_argument(argv, parser.option_names):
        parser.error(wrong)
    found, rest = parser.parse_known_args(argv)
    try:
        parse_name_server(found.name_server)
        province = ProvinceOptions(
            source_topic=found.source_topic,
            sink_topic=found.sink_topic,
            name_server=found.name_server,
            consumer_group=found.consumer_group,
            start=found.start,
            stop=found.stop,
            dead_letter_topic=found.dead_letter_topic,
            audit_topic=found.audit_topic,
            exactly_once=found.exactly_once,
            security=security.from_arguments(found),
        )
        if connects_from_here(found.runner) and not any(each.startswith("--report") for each in rest):
            require_usable(province.security)
    except LocalError as error:
        parser.error(str(error))
    return province, found, rest


def parse(argv: Sequence[str]) -> Arguments:
    """Parse a command line. Wrong usage and `--help` end the program as argparse does, with status 2 or 0."""
    province, found, rest = read(argv)
    try:
        beam_options = strict_options(rest, runner=found.runner)
    except LocalError as error:
        make_parser().error(str(error))
    return Arguments(province, beam_options, found.verbose)
