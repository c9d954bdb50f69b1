"""Tables that are written exactly once: one statement of a job writes them."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.errors import Refusal, Span
from rmqio.sql.planning.plan import Sink


def require_one_writer(sink: Sink, others: Sequence[Sink], span: Span) -> None:
    """Raises `Refusal` if another statement commits the offsets by which the table's writer knows what it wrote."""
    options = sink.table.options
    for each in others:
        given = each.table.options
        if not (options.is_exactly_once and given.is_exactly_once):
            continue
        if (options.topic, options.producer_group) == (given.topic, given.producer_group):
            raise Refusal(
                f"{sink.table.name} is written exactly once, by the group {options.producer_group!r}, and another "
                "statement writes with that group: join their queries with UNION ALL, or write into a table of the "
                "same topic with another 'producerGroup'",
                span,
            )
