"""Running totals of words: reads sentences, writes `{word, count}` again and again as the counts grow.

python pipelines/word_count.py --runner=SparkRunner --streaming --checkpoint_dir=/var/tmp/words \
    --name_server=127.0.0.1:9876 --source_topic=sentences --sink_topic=totals

The job guarantees that the totals of a word go to one queue, by its sharding key. On Spark, a micro-batch writes at
most one total of a word and ends before the next one begins, so totals are in order: in its queue, a word's count never
falls, and the last one is the newest. Totals that a killed run had written but not committed are written again, with
the same counts. Beam itself keeps no order between bundles: on another runner, or after queues were added to the topic,
take the greatest count, which is always the newest.
"""

from __future__ import annotations

if __name__ == "__main__":  # before Beam, whose import takes seconds, and logs a warning if rmqio is not there
    from rmqio.pipelines.common import command_lines

    command_lines.check(command_lines.word_count)

import argparse
import functools
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.transforms.combiners import Count
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, Repeatedly
from apache_beam.transforms.window import GlobalWindows

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message, Record
from rmqio.pipelines.common import command_lines, job
from rmqio.pipelines.common.job import refuse, run_job, where
from rmqio.runners.options import IN_PROCESS_RUNNER
from rmqio.transforms import ReadFromRocketMQ, WriteToRocketMQ

_LOGGER = logging.getLogger(__name__)

_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
_LONGEST: Final = 255
"""A word must fit into the properties of a message, twice; anything longer is not a word anyway."""


def words(sentence: str) -> list[str]:
    """Return the words of a sentence, each as often as it occurs."""
    # Split first: case folding turns some letters into marks, which belong to no word
    return [word.casefold() for word in _WORD.findall(sentence)]


class SplitWords(beam.DoFn):
    """Yields the words of each message. Bad input is left out, counted, and logged once per bundle."""

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
    """Return the message for the sink."""
    word, number = total
    body = json.dumps({"word": word, "count": number}, ensure_ascii=False)
    return Message(body.encode(), keys=(word,), sharding_key=word)


def total_id(run: str, message: Message) -> str:
    """Return a unique id. A word's counts only grow in a run, so an equal count is the same total."""
    total = json.loads(message.body)
    return job.id_of(run, total["word"], total["count"])


def build(
    pipeline: beam.Pipeline, arguments: argparse.Namespace, *, client_factory: ClientFactory | None = None
) -> None:
    """Wire the job. `client_factory` replaces the clients in tests. Raises `LocalError` for bad options."""
    at = where(arguments, client_factory)
    read = ReadFromRocketMQ(
        arguments.source_topic,
        consumer_group=arguments.consumer_group,
        start=arguments.start,
        stop=arguments.stop,
        **at,
    )
    found = pipeline | "Read sentences" >> read | "Words" >> beam.ParDo(SplitWords()).with_output_types(str)
    if pipeline.options.view_as(StandardOptions).streaming:
        # In batch, a shuffle waits for its whole input, and Beam's in-process runner has no clock for such a trigger
        found = found | "Again and again" >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterProcessingTime(arguments.every_ms // 1000)),
            accumulation_mode=AccumulationMode.ACCUMULATING,
        )
    totals = found | "Count" >> Count.PerElement()
    messages = totals | "To messages" >> beam.Map(to_message).with_output_types(Message)
    id_fn = functools.partial(total_id, job.run_of(pipeline))
    written = messages | "Write totals" >> WriteToRocketMQ(arguments.sink_topic, id_fn=id_fn, with_sent=False, **at)
    _ = written.failed | "Totals refused" >> beam.Map(refuse)


def check_runner(options: PipelineOptions, arguments: argparse.Namespace) -> None:
    """Raises `LocalError` if no total would ever be written."""
    given = options.view_as(StandardOptions)
    if given.streaming and given.runner == IN_PROCESS_RUNNER:
        raise LocalError("DirectRunner does not stream; give --stop without --streaming, or another runner")
    if arguments.stop is None and not given.streaming:
        raise LocalError("without --stop totals need a runner that streams: --runner=SparkRunner --streaming")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return the exit status."""
    return run_job(command_lines.word_count(), build, argv, source="sentence", check=check_runner)


if __name__ == "__main__":
    # Import it under its own name, so that other processes can find the functions sent to them.
    from rmqio.pipelines import word_count

    sys.exit(word_count.main())
