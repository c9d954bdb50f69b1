"""Running totals of words: reads sentences, writes `{word, count}`, again and again as the counts grow.

python pipelines/word_count.py --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/words \
    --name_server=127.0.0.1:9876 --source_topic=sentences --sink_topic=totals

What is promised: the totals of a word go to one queue, by its sharding key. On Spark a micro-batch writes at most one
total of a word, and is over before the next one begins, so they come in order: in its queue a word's count never falls,
and the last one is the newest. What a run had written but not committed when it was killed is written again, with the
same counts. Beam itself keeps no order between bundles: behind another runner, or when queues were added to the topic,
take the greatest count, which is always the newest.
"""

from __future__ import annotations

import rmqio.pipelines  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.combiners import Count
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, Repeatedly
from apache_beam.transforms.window import GlobalWindows

from rmqio.errors import LocalError, RmqioError
from rmqio.model import Message, Record
from rmqio.options import NAME_SERVER_VARIABLE
from rmqio.pipelines.arguments import parse_start, parse_stop
from rmqio.pipelines.program import count, run_program
from rmqio.runners.options import IN_PROCESS_RUNNER, unknown_flags
from rmqio.runners.options import options as pipeline_options
from rmqio.seams import ClientFactory
from rmqio.sending.failures import FailedMessage
from rmqio.start import StartFrom
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ

_LOGGER = logging.getLogger(__name__)

_DESCRIPTION: Final = """\
Read sentences (UTF-8 text) from a RocketMQ topic, count their words, and write {"word", "count"} as JSON to another
topic: how often the word has come so far. The message's key and sharding key are the word, so the totals of a word are
in one queue, the newest last. A run that ends has written the complete ones; without --streaming once, at its end.

Words are letters, digits and underscores of any script, with apostrophes (' or U+2019) inside, without regard to case:
"Don't" and "DON'T" are one word, and so is a run of Chinese without spaces. Messages that are not UTF-8 and words of
more than 255 characters are left out, counted and logged.
"""
_EPILOG: Final = """\
Other options go to Beam and its runner. Running totals need one that streams: --runner=SparkRunner --streaming. Started
again with the same --checkpoint_dir it goes on counting where it was, and first writes the totals that were still to
come when it was stopped, or ended by --available_now. --report shows what the runner makes of it all, and ends.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""
_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
_LONGEST: Final = 255
"""A word has to fit into the properties of a message, twice; what is longer than this is none anyway."""


def words(sentence: str) -> list[str]:
    """The words of a sentence, each as often as it comes."""
    # Split first: case folding makes marks of some letters, which are in no word
    return [word.casefold() for word in _WORD.findall(sentence)]


class SplitWords(beam.DoFn):
    """The words of each message. What is bad is left out, counted, and logged once a bundle."""

    def __init__(self) -> None:
        self._not_utf8 = Metrics.counter("word_count", "not_utf8")
        self._too_long = Metrics.counter("word_count", "too_long")

    def start_bundle(self) -> None:
        self._messages = self._words = 0

    def process(self, element: Record) -> Iterator[str]:
        try:
            found = words(element.body.decode())
        except UnicodeDecodeError:
            self._not_utf8.inc()
            self._messages += 1
            return
        for word in found:
            if len(word) <= _LONGEST:
                yield word
            else:
                self._too_long.inc()
                self._words += 1

    def finish_bundle(self) -> None:
        if self._messages or self._words:
            _LOGGER.warning(
                "left out: %d messages that are not UTF-8, %d words of more than %d characters",
                *(self._messages, self._words, _LONGEST),
            )


def to_message(total: tuple[str, int]) -> Message:
    """The message for the sink."""
    word, number = total
    body = json.dumps({"word": word, "count": number}, ensure_ascii=False)
    return Message(body.encode(), keys=(word,), sharding_key=word)


def build(
    pipeline: beam.Pipeline, arguments: argparse.Namespace, *, client_factory: ClientFactory | None = None
) -> None:
    """Wire the job. `client_factory`: another way to make clients, for tests. Raises `LocalError` for bad options."""
    if arguments.source_topic == arguments.sink_topic:
        raise LocalError(f"{arguments.source_topic!r} is both read and written; that would never end")
    at: dict[str, Any] = (
        {"client_factory": client_factory} if client_factory else {"name_server": arguments.name_server}
    )
    read = ReadFromRocketMQ(
        arguments.source_topic,
        consumer_group=arguments.consumer_group,
        start=arguments.start,
        stop=arguments.stop,
        **at,
    )
    found = pipeline | "Read sentences" >> read | "Words" >> beam.ParDo(SplitWords()).with_output_types(str)
    if pipeline.options.view_as(StandardOptions).streaming:
        # Elsewhere a shuffle waits for its whole input, and Beam's in-process runner has no clock for such a trigger
        found = found | "Again and again" >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterProcessingTime(arguments.every_ms // 1000)),
            accumulation_mode=AccumulationMode.ACCUMULATING,
        )
    totals = found | "Count" >> Count.PerElement()
    messages = totals | "To messages" >> beam.Map(to_message).with_output_types(Message)
    written = messages | "Write totals" >> WriteToRocketMQ(arguments.sink_topic, with_sent=False, **at)
    _ = written.failed | "Totals refused" >> beam.Map(refuse)


def refuse(failed: FailedMessage) -> None:
    """Fail the pipeline: a total that is not written is not to be forgotten."""
    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")


def parse_every(text: str) -> int:
    """Milliseconds, in whole seconds: Beam's Python SDK has no fractions of them in a trigger."""
    if not (text.isascii() and text.isdigit() and int(text) % 1000 == 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 1000 milliseconds, as Beam's triggers need it")
    return int(text)


def make_parser() -> argparse.ArgumentParser:
    """The parser, without the options that go to Beam."""
    parser = argparse.ArgumentParser(
        prog="word_count.py",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--name_server", metavar="HOST:PORT", help=f"default: the environment variable {NAME_SERVER_VARIABLE}")
    add("--source_topic", required=True, metavar="TOPIC", help="topic with the sentences")
    add("--sink_topic", required=True, metavar="TOPIC", help="topic for the totals; must exist")
    add("--consumer_group", metavar="GROUP", help="whose offsets are committed, to be looked at")
    add(
        "--start",
        type=parse_start,
        default=StartFrom.earliest(),
        metavar="WHERE",
        help="earliest (default), latest, timestamp:TIME or group[:earliest|latest|error]; at first start only",
    )
    add(
        "--stop",
        type=parse_stop,
        metavar="WHERE",
        help="none (default), latest (what the topic holds when the job starts) or timestamp:TIME",
    )
    add(
        "--every_ms",
        type=parse_every,
        default=1_000,
        metavar="MS",
        help="with --streaming: a word's total is written at most this often; whole seconds. Default: 1000",
    )
    add("-v", "--verbose", action="store_true", help="tracebacks, and what Beam tells")
    return parser


def check_runner(options: Any, *, ends: bool) -> None:
    """Raises `LocalError` where no total would ever be written."""
    if options.streaming and options.runner == IN_PROCESS_RUNNER:
        raise LocalError("DirectRunner does not stream; give --stop without --streaming, or another runner")
    if not ends and not options.streaming:
        raise LocalError("without --stop totals need a runner that streams: --runner=SparkRunner --streaming")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line; the exit status."""
    arguments, rest = make_parser().parse_known_args(sys.argv[1:] if argv is None else argv)
    try:
        found = pipeline_options(rest)
        if unknown := unknown_flags(found):
            raise LocalError(f"unknown option {', '.join(unknown)}; --help shows the job's own")
        check_runner(found.view_as(StandardOptions), ends=arguments.stop is not None)
    except LocalError as error:
        print(f"word_count.py: {error}", file=sys.stderr)
        return 2
    return run_program(
        "word_count.py",
        found,
        lambda pipeline: build(pipeline, arguments),
        lambda result: (
            f"{count(result, 'records_read')} sentences read, {count(result, 'messages_sent')} totals written"
        ),
        verbose=arguments.verbose,
    )


if __name__ == "__main__":
    # Under its own name, so that other processes find the functions that they are sent.
    from rmqio.pipelines import word_count

    sys.exit(word_count.main())
