"""Correlates the messages of an endless topic by their user, as if each had met the rule that it names, or 'failed'."""

from __future__ import annotations

import json
import sys
from typing import Any

import apache_beam as beam

from rmqio import Message, ReadFromRocketMQ, Record, StartFrom, WriteToRocketMQ
from rmqio.rules import Correlate, Correlated, CorrelationKind, CorrelationRule, Match
from rmqio.runners import options

MANY = CorrelationRule("many", CorrelationKind.EVENT_COUNT, ("failed",), 3_600_000, ("user",), count=3)
PAIR = CorrelationRule("pair", CorrelationKind.EVENT_COUNT, ("first", "second"), 60_000, ("user",), count=2)
ORDER = CorrelationRule("order", CorrelationKind.TEMPORAL_ORDERED, ("first", "second"), 60_000, ("user",))


def to_match(record: Record) -> Match:
    return Match(record.body, json.loads(record.body).get("rule", "failed"), "", "low", (), "1", ())


def to_message(found: Correlated) -> Message:
    user = found.group[0][1]
    body = {"user": user, "number": found.number, "rule": found.rule_id}
    return Message(json.dumps(body).encode(), keys=(f"{found.rule_id}-{user}",))


def main() -> None:
    """Takes the topics of events and results, the name server, and flags of the runner."""
    source, sink, name_server = sys.argv[1:4]
    at: Any = {"name_server": name_server}
    with beam.Pipeline(options=options(sys.argv[4:])) as pipeline:
        events = pipeline | ReadFromRocketMQ(source, start=StartFrom.earliest(), **at)
        matches = events | "To matches" >> beam.Map(to_match).with_output_types(Match)
        found = matches | Correlate([MANY, PAIR, ORDER])
        messages = found.correlated | "To messages" >> beam.Map(to_message).with_output_types(Message)
        _ = messages | WriteToRocketMQ(sink, id_fn=lambda message: message.keys[0], **at)


if __name__ == "__main__":
    main()
