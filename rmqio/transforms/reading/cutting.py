"""The part of a broker's answer that a read may emit, and what it holds in memory."""

from __future__ import annotations

import itertools
import operator

from rmqio.interfaces import FetchedBatch
from rmqio.model import Record

_stored_size = operator.itemgetter(Record._fields.index("stored_size"))  # by position: runs per message
_body = operator.itemgetter(Record._fields.index("body"))


def cut_to(fetched: FetchedBatch, stop: int | None, limit: int | None) -> FetchedBatch:
    """The part of an answer before the stop and within the limit."""
    if stop is not None and fetched.next_offset > stop:
        fetched = fetched._replace(
            records=list(itertools.takewhile(lambda r: r.queue_offset < stop, fetched.records)),
            corrupt=tuple(c for c in fetched.corrupt if c.queue_offset < stop),
            next_offset=stop,
        )
    if limit is not None and len(fetched.records) >= limit:
        records = fetched.records[:limit]
        end = records[-1].queue_offset + 1
        fetched = fetched._replace(
            records=records, corrupt=tuple(c for c in fetched.corrupt if c.queue_offset < end), next_offset=end
        )
    return fetched


def held_bytes(records: list[Record]) -> int:
    """The memory that the records use: their stored sizes, or their decompressed bodies if those are larger."""
    stored: int = sum(map(_stored_size, records))
    return max(stored, sum(map(len, map(_body, records))))
