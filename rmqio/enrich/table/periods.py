"""Rows that are valid from a time and until another: both as microseconds since 1970 in UTC."""

from __future__ import annotations

import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqio.errors import LocalError

FROM: Final = "__from"
TO: Final = "__to"
FIRST: Final = -(1 << 63)
LAST: Final = (1 << 63) - 1


def periods(batch: pa.RecordBatch, name: str | None, open_end: int) -> pa.Array:
    """Returns the times of a column; `open_end` for nulls, and if there is no such column."""
    if name is None:
        return pa.array(np.full(batch.num_rows, open_end, np.int64))
    column = batch.column(name)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_null(kind):
        column = column.cast(pa.timestamp("us"))
    elif not pa.types.is_timestamp(kind):
        raise LocalError(f"the column {name} is {kind}; the times of validity are timestamps or dates")
    column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return pc.fill_null(column, open_end)


def until_next(batch: pa.RecordBatch, hashes: Any) -> pa.RecordBatch:
    """Returns rows in the order of their hash and start, each valid until the next one of its key begins."""
    starts = np.asarray(batch.column(FROM))
    ends = np.full(len(starts), LAST, np.int64)
    same = hashes[1:] == hashes[:-1]
    ends[:-1][same] = starts[1:][same]
    return batch.set_column(batch.schema.get_field_index(TO), TO, pa.array(ends))


def require_apart(hashes: Any, starts: Any, ends: Any, shown: Any) -> None:
    """Raises `LocalError` if two rows of one key are valid at one time, or a row ends before it begins.

    The rows are in the order of their hash and their start. `shown`: the function from a position to its key.
    """
    if np.any(ends <= starts):
        place = int(np.flatnonzero(ends <= starts)[0])
        raise LocalError(f"the key {shown(place)} has a row that ends before it begins, or two that begin at once")
    both = (hashes[1:] == hashes[:-1]) & (starts[1:] < ends[:-1])
    if np.any(both):
        place = int(np.flatnonzero(both)[0])
        raise LocalError(
            f"the key {shown(place)} has two rows that are valid at {text_of(int(starts[place + 1]))}: periods of a "
            "key must not overlap"
        )


def text_of(microseconds: int) -> str:
    """Returns a time for a message."""
    if microseconds == FIRST:
        return "the beginning of time"
    try:
        return str(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=microseconds))
    except OverflowError:
        return f"{microseconds} us after 1970"
