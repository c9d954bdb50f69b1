"""A pipeline that enriches messages by a file, in batches, and by a topic, one by one, on all runners."""

from __future__ import annotations

import json
import sys
from typing import Any

import apache_beam as beam

from rmqio import Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.enrich import Enrich, Table
from rmqio.runners import options


def message(row: dict[str, Any]) -> Message:
    """Returns the message of a row."""
    return Message(json.dumps(row).encode())


def main() -> None:
    """Takes the topics of messages, rows and results, the name server, a folder, and flags of the runner."""
    source, rows, sink, name_server, folder = sys.argv[1:6]
    at: Any = {"name_server": name_server}
    users = Table.from_parquet(f"{folder}/users.parquet", cache_dir=f"{folder}/cache")
    towns = Table.from_topic(rows, types={"id": "int64"}, cache_dir=f"{folder}/cache", **at)
    with beam.Pipeline(options=options(sys.argv[6:])) as pipeline:
        _ = (
            pipeline
            | ReadFromRocketMQ(source, start=StartFrom.earliest(), stop=StopAt.latest(), batches=True, **at)
            | Enrich(users, {"user": "id"}, batches=True, dead_letter_topic=sink, **at)
            | beam.FlatMap(lambda batch: batch)
            | "Towns" >> Enrich(towns, {"town": "id"}, ["town"], prefix="in_")
            | beam.Map(message).with_output_types(Message)
            | WriteToRocketMQ(sink, **at)
        )


if __name__ == "__main__":
    main()
