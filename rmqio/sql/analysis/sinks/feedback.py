"""Jobs that read what they write: each row would come back, for ever."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.planning.plan import Sink, tables_of


def feedback(sink: Sink, sinks: Sequence[Sink]) -> str:
    """Returns why the job would feed itself through the sink; empty: it would not, or the table allows it.

    Only topics count that are read without an end, directly or by the other statements of the job.
    """
    target = sink.table.options
    if target.topic is None or target.allows_feedback:
        return ""
    reached, pending = {target.topic}, [target.topic]
    while pending:
        topic = pending.pop()
        for each in sinks:
            if topic not in _read(each) or each.table.options.topic is None:
                continue
            if each is sink:
                return (
                    f"the job would feed itself: it reads the topic {target.topic}, and {sink.table.name} writes it. "
                    "Write another topic; or, if the rows that are written do not pass the query again, give "
                    f"{sink.table.name} 'sink.allow-feedback' = 'true'; or end the read by --stop or endTime"
                )
            if each.table.options.topic not in reached:
                reached.add(each.table.options.topic)
                pending.append(each.table.options.topic)
    return ""


def _read(sink: Sink) -> set[str | None]:
    tables = [each.options for each in tables_of(sink)]
    return {each.topic for each in tables if each.connector == "rocketmq" and each.end_ms is None}
