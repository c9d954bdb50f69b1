"""Running totals of words: reads sentences (UTF-8), writes {"word", "count"}: how often the word occurred so far.

The word is the key and the sharding key of its message, so all totals of a word are in one queue, in order on Spark:
the last one is the newest. On another runner, or after queues were added, take the greatest. A run that ends writes the
final totals; without --streaming, only those.

Words are letters, digits and underscores of any script, with apostrophes (' or U+2019) inside, regardless of case: a
run of Chinese without blanks is one word. Messages that are not UTF-8 and words of more than 255 characters are left
out, counted and logged.

example:
  python pipelines/word_count.py --name_server=127.0.0.1:9876 \\
    --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/words \\
    --source_topic=sentences --sink_topic=totals
"""

from __future__ import annotations

import argparse

from rmqio.runners import Program


def whole_seconds(text: str) -> int:
    """Parses milliseconds: triggers of Beam's Python SDK take no fractions of a second."""
    if not (text.isascii() and text.isdigit() and int(text) % 1000 == 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 1000 milliseconds, which Beam's triggers need")
    return int(text)


program = Program(__file__, __doc__, source="sentence", sink="total", stateful=True)
program.parser.add_argument(
    "--every_ms",
    type=whole_seconds,
    default=1_000,
    metavar="MS",
    help="with --streaming, write a word's total at most this often; whole seconds. Default: 1000",
)
if __name__ == "__main__":
    program.check()  # before Beam, whose import takes seconds

import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Final

from rmqio import Message, ReadFromRocketMQ, Record, WriteToRocketMQ
from rmqio.errors import LocalError
from rmqio.transforms import ids_by
import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.combiners import Count
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, Repeatedly
from apache_beam.transforms.window import GlobalWindows

LOGGER: Final = logging.getLogger("word_count")
WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
LONGEST: Final = 255
"""A word must fit into the properties of a message, twice; anything longer is not a word anyway."""


def words(sentence: str) -> list[str]:
    """Returns the words of a sentence. It splits first: case folding turns some letters into marks."""
    return [word.casefold() for word in WORD.findall(sentence)]


class SplitWords(beam.DoFn):
    """Yields the words of each message. Bad input is left out, counted, and logged once per bundle."""

    def __init__(self) -> None:
        self._not_utf8 = Metrics.counter("word_count", "not_utf8")
        self._too_long = Metrics.counter("word_count", "too_long")

    def start_bundle(self) -> None:
        self._bad_messages = self._long_words = 0

    def process(self, record: Record) -> Iterator[str]:
        try:
            sentence = record.body.decode()
        except UnicodeDecodeError:
            self._not_utf8.inc()
            self._bad_messages += 1
            return
        for word in words(sentence):
            if len(word) <= LONGEST:
                yield word
            else:
                self._too_long.inc()
                self._long_words += 1

    def finish_bundle(self) -> None:
        if self._bad_messages or self._long_words:
            text = "left out: %d messages that are not UTF-8, %d words of more than %d characters"
            LOGGER.warning(text, self._bad_messages, self._long_words, LONGEST)


def to_message(total: tuple[str, int]) -> Message:
    """Returns the message for the sink."""
    word, count = total
    body = json.dumps({"word": word, "count": count}, ensure_ascii=False)
    return Message(body.encode(), keys=(word,), sharding_key=word)


def identity(message: Message) -> tuple[str, int]:
    """Returns what identifies a total. A word's count only grows in a run, so an equal count is the same total."""
    total = json.loads(message.body)
    return total["word"], total["count"]


def build(pipeline: beam.Pipeline, options: argparse.Namespace) -> None:
    """Raises `LocalError` if no total would ever be written."""
    standard = pipeline.options.view_as(StandardOptions)
    if standard.streaming and str(standard.runner).endswith("DirectRunner"):
        raise LocalError("DirectRunner does not stream; give --stop without --streaming, or another runner")
    if options.stop is None and not standard.streaming:
        raise LocalError("without --stop totals need a runner that streams: --runner=SparkRunner --streaming")
    found = pipeline | "Read sentences" >> ReadFromRocketMQ(**options.read) | "Words" >> beam.ParDo(SplitWords())
    if standard.streaming:
        # In batch, a shuffle waits for its whole input, and Beam's in-process runner has no clock for such a trigger
        found |= "Again and again" >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterProcessingTime(options.every_ms // 1000)),
            accumulation_mode=AccumulationMode.ACCUMULATING,
        )
    totals = found | "Count" >> Count.PerElement() | "To messages" >> beam.Map(to_message)
    id_fn = ids_by(pipeline, identity)
    _ = totals | "Write totals" >> WriteToRocketMQ(**options.write, id_fn=id_fn, fail_on_error=True, with_sent=False)


if __name__ == "__main__":
    sys.exit(program.run(build))
