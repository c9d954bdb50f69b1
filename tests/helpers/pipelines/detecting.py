"""The pipeline of detect.py with a table of a compacted topic before its rules, without an end."""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam

from rmqio import ReadFromRocketMQ, StartFrom, WriteToRocketMQ
from rmqio.enrich import Enrich, Table
from rmqio.rules import AlertMessages, MatchRules, RuleSet
from rmqio.runners import options


def main() -> None:
    """Takes the topics of events, rules, users, hits and dead letters, the name server, a folder, and flags."""
    events, rules, users, hits, dead, name_server, folder = sys.argv[1:8]
    at: Any = {"name_server": name_server}
    letters: Any = {"dead_letter_topic": dead, **at}
    table = Table.from_topic(users, types={"id": "int64"}, cache_dir=f"{folder}/cache", **at)
    with beam.Pipeline(options=options(sys.argv[8:])) as pipeline:
        read = pipeline | ReadFromRocketMQ(events, start=StartFrom.earliest(), batches=True, **at)
        enriched = read | Enrich(table, {"user": "id"}, ["tier"], prefix="of_", batches=True, **letters)
        found, _ = enriched | MatchRules(RuleSet.from_topic(rules, **at), refresh_s=1, **letters)
        _ = found | AlertMessages() | WriteToRocketMQ(hits, batches=True, with_sent=False, **at)


if __name__ == "__main__":
    main()
