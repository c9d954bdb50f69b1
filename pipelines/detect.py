"""Detection: reads events as JSON, and writes a message for each rule that an event matches. Rules can change.

python pipelines/detect.py --name_server=127.0.0.1:9876 --source_topic=events --sink_topic=alerts \
    --rules='rules/*.yml' --dead_letter_topic=bad-events
"""

from __future__ import annotations

if __name__ == "__main__":  # before Beam, whose import takes seconds, and logs a warning if rmqio is not there
    from rmqio.pipelines.common import command_lines

    command_lines.check(command_lines.detect)

import argparse
import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.error_handling import ErrorHandler

from rmqio.batches import Batch
from rmqio.model import Message, MessageQueue
from rmqio.pipelines.common import command_lines
from rmqio.pipelines.common.enriching import enrich_of
from rmqio.pipelines.common.job import refuse, run_job, where
from rmqio.rules import Match, MatchRules, RuleSet
from rmqio.rules.alerts import json_value
from rmqio.transforms import ReadFailure, ReadFromRocketMQ, WriteToRocketMQ
from rmqio.transforms.parts import BatchConstraint

_LOGGER: Final = logging.getLogger(__name__)
_MOST_BYTES: Final = 4_000_000
"""A broker takes 4 MiB. The event of a larger hit is left out; its place in the topic says where it is."""


class ToMessagesFn(beam.DoFn):
    """Makes messages of batches of hits. The place of an event is that of its hit."""

    def process(self, batch: Batch[Match]) -> Iterator[Batch[Any]]:
        queue = batch.queue
        assert queue is not None  # they come from a topic
        made = [to_message(each, queue, offset) for each, offset in zip(batch, batch.offsets, strict=True)]
        yield batch.with_values(made)


def to_message(match: Match, queue: MessageQueue, offset: int) -> Message:
    """Return the message for the sink. Its key is the rule, its tag the level.

    A rule without an id has a title instead. A key has no white space, so it is percent-encoded, as in keys of SQL.
    """
    keys = (re.sub(r"\s", lambda found: quote(found[0]), match.rule_id),)
    body = {
        "rule": match.rule_id,
        "title": match.title,
        "level": match.level,
        "tags": match.tags,
        "rules_version": match.ruleset_version,
        "conditions": [{"field": field, "condition": text, "value": value} for field, text, value in match.atoms],
        "topic": queue.topic,
        "broker": queue.broker,
        "queue": queue.queue_id,
        "offset": offset,
    }
    event = b""
    if not isinstance(match.message, dict):
        event = match.message.body  # as it is: the rules have read it, so it is JSON
    else:
        with contextlib.suppress(RecursionError, ValueError):  # nested too deep, or with an integer of too many digits
            event = _encoded(match.message)
    encoded = _encoded(body)
    if event and len(encoded) + len(event) <= _MOST_BYTES:
        return Message(b'%b,"event":%b}' % (encoded[:-1], event), keys=keys, tags=match.level)
    return Message(_encoded({**body, "event_left_out": True}), keys=keys, tags=match.level)


def _encoded(body: dict[str, Any]) -> bytes:
    # Columns of a table can have dates and decimals.
    text = json.dumps(json_value(body), ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def log_failure(failure: ReadFailure) -> None:
    """Log a message that is not an event."""
    where_ = f"{failure.topic}/{failure.broker}/{failure.queue_id}, offset {failure.queue_offset}"
    _LOGGER.warning("left out %s: %s", where_, failure.reason)


def build(pipeline: beam.Pipeline, arguments: argparse.Namespace) -> None:
    """Wire the job."""
    read = ReadFromRocketMQ(
        arguments.source_topic,
        **where(arguments),
        consumer_group=arguments.consumer_group,
        start=arguments.start,
        stop=arguments.stop,
        batches=True,
    )
    letters: dict[str, Any] = {}
    if arguments.dead_letter_topic:
        letters = {"dead_letter_topic": arguments.dead_letter_topic, **where(arguments)}
    match = MatchRules(
        command_lines.rules_of(arguments),
        refresh_s=arguments.refresh_s,
        match=arguments.match,
        on_bad_rule=arguments.on_bad_rule,
        **letters,
    )
    events = pipeline | "Read events" >> read
    if (enrich := enrich_of(arguments, **letters)) is not None:
        events = _enriched(events, enrich, logs=not letters)
    hits, errors = events | "Match" >> match
    if not letters:
        _ = errors | "Bad events" >> beam.Map(log_failure)
    making = beam.ParDo(ToMessagesFn()).with_output_types(BatchConstraint(Message))
    messages = hits | "To messages" >> making
    written = messages | "Write hits" >> WriteToRocketMQ(
        arguments.sink_topic, batches=True, with_sent=False, **where(arguments)
    )
    _ = written.failed | "Hits refused" >> beam.Map(refuse)


def _enriched(events: Any, enrich: Any, *, logs: bool) -> Any:
    if not logs:
        return events | "Enrich" >> enrich
    with ErrorHandler(beam.Map(log_failure)) as handler:
        return events | "Enrich" >> enrich.with_error_handler(handler)


def check(options: PipelineOptions, arguments: argparse.Namespace) -> None:
    """Raise `LocalError` for rules that cannot be used: before the job runs, with every problem."""
    del options
    rules = command_lines.rules_of(arguments)
    correlations = (rules.usable() if arguments.on_bad_rule == "skip" else rules.loaded()).correlations
    if correlations:
        _LOGGER.warning(
            "%d correlation rules, such as %s, are left out: detect.py matches single events",
            len(correlations),
            correlations[0].id,
        )
    MatchRules(RuleSet.of(()), refresh_s=arguments.refresh_s)
    enrich_of(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return the exit status."""
    return run_job(command_lines.detect(), build, argv, source="event", sink="hit", check=check)


if __name__ == "__main__":
    # Import it under its own name, so that other processes can find the functions sent to them.
    from rmqio.pipelines import detect

    sys.exit(detect.main())
