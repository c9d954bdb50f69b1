"""The command lines of the jobs that share `run_job`: their options, which are checked before Beam is imported."""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Callable, Sequence
from typing import Final

from rmqio import security
from rmqio.command_line.arguments import add_name_server, parse_group, parse_topic, require_usable, whole_number
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError
from rmqio.options import parse_name_server
from rmqio.pipelines.common.arguments import parse_start, parse_stop
from rmqio.pipelines.common.enriching import add_enrich_arguments, lookup_of, parse_interval
from rmqio.rules import RuleSet
from rmqio.runners.options import connects_from_here, known_flags, wrong_argument
from rmqio.start import StartFrom

_WORD_COUNT: Final = """\
Read sentences (UTF-8 text) from a RocketMQ topic, count their words, and write {"word", "count"} as JSON to another
topic: how often the word has occurred so far. The word is the key and the sharding key of the message, so all totals of
a word are in one queue, the newest last. A run that ends writes the final totals; without --streaming, only those.

Words are letters, digits and underscores of any script, with apostrophes (' or U+2019) inside, regardless of case:
"Don't" and "DON'T" are one word, and so is a run of Chinese without spaces. Messages that are not UTF-8 and words of
more than 255 characters are left out, counted and logged.
"""
_WORD_COUNT_MORE: Final = """\
Other options go to Beam and its runner. Running totals need one that streams: --runner=SparkRunner --streaming. After a
restart with the same --checkpoint_dir, the job resumes counting. It first writes the totals that were pending when it
was stopped or --available_now ended it. --report shows how the runner handles the pipeline, without running it.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""
_WINDOWED_ORDERS: Final = """\
Read {"key", "amount", "time_ms"} as JSON from a RocketMQ topic, sum and count the amounts of each key in tumbling
event-time windows, and write {"key", "start_ms", "end_ms", "count", "sum"} to another topic when a window closes.

A window closes when each queue has had an order whose time is --lateness_ms after the window's end; a queue without new
orders follows the clock. Orders that arrive later are dropped.
"""
_WINDOWED_ORDERS_MORE: Final = """\
Other options go to Beam and its runner; --report shows how the runner handles the pipeline, without running it. With
--stop, all windows close at the end.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""
_ORDERS_AVRO: Final = """\
Read orders from a RocketMQ topic, count them and sum their amounts by customer in tumbling event-time windows, and
write the totals to another topic when a window closes.

Orders are Avro single objects (C3 01, a fingerprint, the value) of any version of shop.Order; totals are single objects
of shop.CustomerTotal. `python -m rmqio.schemas list` shows the schemas. The key of a total is the customer.
"""
_ORDERS_AVRO_MORE: Final = """\
Other options go to Beam and its runner; --report shows how the runner handles the pipeline, without running it. With
--stop, all windows close at the end. Messages that are not orders go to --dead_letter_topic; without it, they fail the
job.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""
_DETECT: Final = """\
Read events (JSON objects) from a RocketMQ topic, and write {"rule", "title", "level", "tags", "rules_version",
"conditions", "topic", "broker", "queue", "offset", "event"} to another topic for each rule that an event matches. The
rules come from files, or from a topic whose messages have the name of a file as key and its text as body.

With --enrich, each event gets columns of a table of files before the rules see it, so that rules can use them.

When the rules change, new ones are in force within --refresh_s. If they cannot be used, those before stay, and the log
says which file, line and rule is wrong.
"""
_DETECT_MORE: Final = """\
Other options go to Beam and its runner; --report shows how the runner handles the pipeline, without running it. A
message that is not a JSON object goes to --dead_letter_topic; without one, it is logged.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""


def check(make: Callable[[], Parser], argv: Sequence[str] | None = None) -> None:
    """End the program with status 2 if its command line is wrong, as far as that can be told without Beam."""
    parser = make()
    try:
        read(parser, sys.argv[1:] if argv is None else argv)
    except LocalError as error:
        parser.error(str(error))


def read(parser: Parser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of a job, and those for Beam. Raises `LocalError`, naming the option."""
    if wrong := wrong_argument(argv, parser.option_names):
        raise LocalError(wrong)
    found, rest = parser.parse_known_args(argv)
    if found.source_topic == found.sink_topic:
        raise LocalError(f"{found.source_topic!r} is both read and written, so the job would never end")
    parse_name_server(found.name_server)
    found.runner = _require_secured(security.from_arguments(found), rest)
    if found.start.needs_group and found.consumer_group is None:
        raise LocalError("--start=group needs --consumer_group, the group at whose offsets to start")
    found.require(found)
    return found, rest


def _require_secured(secured: security.Security, rest: Sequence[str]) -> str:
    """Return the runner. Raises `LocalError` for credentials and files of TLS that it cannot read from here."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runner", nargs="?")
    parser.add_argument("--report", nargs="?", const="True")
    given, _ = parser.parse_known_args(rest)
    found = given.runner or "DirectRunner"
    if connects_from_here(found) and not given.report:
        require_usable(secured)
    return found


def rules_of(arguments: argparse.Namespace) -> RuleSet:
    """Return where the rules of `detect.py` come from. Raises `LocalError`."""
    if bool(arguments.rules) == bool(arguments.rules_topic):
        raise LocalError("give either --rules or --rules_topic")
    given = {"format": arguments.format, "mapping": arguments.mapping}
    if arguments.rules:
        return RuleSet.from_files(*arguments.rules, **given)
    at = {"name_server": arguments.name_server, "security": security.from_arguments(arguments)}
    return RuleSet.from_topic(arguments.rules_topic, **given, **at)


def _require_files(arguments: argparse.Namespace) -> None:
    rules = rules_of(arguments)
    if arguments.rules and rules.source is not None:
        rules.source.texts()  # they are parsed later, with Beam
    lookup_of(arguments)
    for path in arguments.enrich or ():
        if arguments.runner == "DirectRunner" and "://" not in path and not glob.glob(path):
            raise LocalError(f"--enrich: there is no file {path}")


def _parser(name: str, description: str, epilog: str, *, source: str, sink: str = "totals") -> Parser:
    """Return a parser with the options of every such job; `source` and `sink` say what the topics hold."""
    parser = Parser(prog=name, description=description, epilog=epilog)
    parser.known_elsewhere = known_flags
    parser.set_defaults(require=lambda found: None)
    add = parser.add_argument
    add_name_server(parser)
    add("--source_topic", type=parse_topic, required=True, metavar="TOPIC", help=f"topic with the {source}")
    add("--sink_topic", type=parse_topic, required=True, metavar="TOPIC", help=f"topic for the {sink}; must exist")
    add("--consumer_group", type=parse_group, metavar="GROUP", help="commit offsets for this group, for monitoring")
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


def _every(text: str) -> int:
    """Parse milliseconds, in whole seconds: triggers of Beam's Python SDK take no fractions of a second."""
    if not (text.isascii() and text.isdigit() and int(text) % 1000 == 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 1000 milliseconds, which Beam's triggers need")
    return int(text)


def word_count() -> Parser:
    """Return the parser of `word_count.py`, without the options that go to Beam."""
    parser = _parser("word_count.py", _WORD_COUNT, _WORD_COUNT_MORE, source="sentences")
    parser.add_argument(
        "--every_ms",
        type=_every,
        default=1_000,
        metavar="MS",
        help="with --streaming, write a word's total at most this often; whole seconds. Default: 1000",
    )
    return parser


def _add_windows(parser: Parser, seconds: int) -> None:
    parser.add_argument(
        "--window_s",
        type=whole_number("number", 1),
        metavar="SECONDS",
        default=seconds,
        help="length of a window in seconds. Default: %(default)s",
    )
    parser.add_argument(
        "--lateness_ms",
        type=whole_number("number", 0),
        metavar="MS",
        default=5_000,
        help="how far out of order an order may arrive. Default: %(default)s",
    )


def windowed_orders() -> Parser:
    """Return the parser of `windowed_orders.py`, without the options that go to Beam."""
    parser = _parser("windowed_orders.py", _WINDOWED_ORDERS, _WINDOWED_ORDERS_MORE, source="orders")
    add = parser.add_argument
    _add_windows(parser, 10)
    add(
        "--idle_timeout_ms",
        type=whole_number("number", 0),
        metavar="MS",
        default=30_000,
        help="after how long a queue without orders follows the clock",
    )
    add(
        "--offset_commit_interval_ms",
        type=whole_number("number", 0),
        metavar="MS",
        default=5_000,
        help="how often to commit the group's offsets",
    )
    return parser


def orders_avro() -> Parser:
    """Return the parser of `orders_avro.py`, without the options that go to Beam."""
    parser = _parser("orders_avro.py", _ORDERS_AVRO, _ORDERS_AVRO_MORE, source="orders")
    add = parser.add_argument
    _add_windows(parser, 60)
    add(
        "--dead_letter_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="topic for messages that are not orders; must exist",
    )
    return parser


def detect() -> Parser:
    """Return the parser of `detect.py`, without the options that go to Beam."""
    parser = _parser("detect.py", _DETECT, _DETECT_MORE, source="events", sink="hits")
    add = parser.add_argument
    add("--rules", action="append", metavar="FILES", help="files of rules, such as 'rules/*.yml'; can be repeated")
    add(
        "--rules_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="topic with the rules: the key is the name of a file, the body its text",
    )
    add("--format", choices=("sigma", "where", "json"), help="of the rules. Default: by the suffix of each file")
    add("--mapping", metavar="FILE", help="names of fields and log sources, see docs/rules/sigma.md")
    add(
        "--refresh_s",
        type=parse_interval,
        default=30.0,
        metavar="SECONDS",
        help="how old the rules may be, in seconds. Default: 30",
    )
    add(
        "--on_bad_rule",
        choices=("keep_previous", "skip", "fail"),
        default="keep_previous",
        help="if some rules cannot be used: skip and list them, also at the start; fail; or keep_previous rules. "
        "Default: keep_previous",
    )
    add(
        "--match",
        choices=("all", "first", "best"),
        default="all",
        help="which matching rules of an event to report. Default: all",
    )
    add(
        "--dead_letter_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="topic for messages that are not JSON objects; must exist",
    )
    add_enrich_arguments(parser)
    parser.set_defaults(require=_require_files)
    return parser
