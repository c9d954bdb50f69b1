"""Sinks of a job: ids of their rows, and the transforms that write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from rmqio.model import Message
from rmqio.repeats import LookBack
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.identity import has_groups, has_own_ids, id_position, with_ids
from rmqio.sql.planning.plan import Sink
from rmqio.sql.runtime.connection import Connection
from rmqio.sql.runtime.more_relations import in_order
from rmqio.sql.runtime.writes.identified import id_of_row, message_of_row
from rmqio.sql.runtime.writes.write_files import WriteFiles
from rmqio.transforms import WriteToRocketMQ


def identified(sink: Sink, label: str, run: str, *, is_stream: bool, has_places: bool) -> Sink:
    """Returns the sink with stable ids, if its rows can have them.

    Args:
      label: of the write, which distinguishes its rows from others that come from the same.
      run: names this run of the job.
      is_stream: whether the job does not end.
      has_places: whether all rows that are read have a place.
    """
    if has_own_ids(sink) or not has_places:
        return sink
    # A run that ends can have read something else, which gives groups other rows.
    salt = label if is_stream or not has_groups(sink) else f"{label} {run}"
    found = with_ids(sink, salt, is_stream=is_stream)
    if found is None and sink.table.options.is_exactly_once:
        raise Refusal(
            f"{sink.table.name} is written exactly once, and rows of this statement have no ids that are the same "
            "when they come again: leave 'sink.delivery-guarantee' out",
            sink.span,
        )
    return found or sink


def write(
    sink: Sink, rows: Any, label: str, connection: Connection, run: str, refused: Callable[[Any, str], None]
) -> None:
    """Adds the write of a sink.

    Args:
      run: names this run of the job.
      refused: takes the failures of rows that cannot be sent, and a label.
    """
    if sink.table.options.connector == "blackhole":
        return
    if sink.table.options.connector == "print":
        _ = rows | label.replace("Write", "Print") >> beam.ParDo(PrintFn())
        return
    if sink.table.options.connector == FILES:
        _ = rows | label >> WriteFiles(sink.table, sink.columns, run[:12])
        return
    rows = in_order(sink, rows, label)
    options = sink.table.options
    how: dict[str, Any] = {"producer_group": options.producer_group}
    if options.is_exactly_once:
        how["exactly_once"] = LookBack(group=options.producer_group)
    if id_position(sink.columns) is not None:
        how |= {"id_fn": id_of_row, "serializer": message_of_row}
    written = rows | label >> WriteToRocketMQ(
        options.topic, batches=True, with_sent=False, **how, **connection.of(sink.table)
    )
    refused(written.failed, f"{label}: refused")


class PrintFn(beam.DoFn):
    """Prints rows, each in its line."""

    def __init__(self) -> None:
        self._written = Metrics.counter("rmqio.sql", "messages_sent")

    def process(self, element: Sequence[Any]) -> None:
        self._written.inc(len(element))
        for row in element:
            if isinstance(row, Message) and row.is_tombstone:
                print(f"deleted: {row.keys[0]}", flush=True)
                continue
            body = row.body if isinstance(row, Message) else row
            print(body.decode("utf-8", "replace"), flush=True)
