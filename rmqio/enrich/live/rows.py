"""Rows of a table in files, and those that replace them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqio.enrich.live.decoding import Change
from rmqio.enrich.table.mapped import MappedTable


class LiveRows:
    """See `MappedTable`. The thread that reads changes `delta` by single stores, so that a look-up needs no lock."""

    def __init__(self, base: MappedTable, delta: dict[Any, Change]) -> None:
        self.base, self.delta = base, delta
        self.columns = base.columns
        self.key_types = base.key_types
        self.type_of = base.type_of

    def get(self, keys: list[Any], times: list[int] | None = None, *, many: bool = False) -> list[Any]:
        found = self.base.get(keys, times, many=many)
        delta = self.delta
        if delta:
            for place, key in enumerate(keys):
                if found[place] is not NotImplemented and (change := delta.get(key)) is not None:
                    found[place] = _shown(change, many)
        return found

    def get_one(self, key: Any, time: int | None = None, *, many: bool = False) -> Any:
        found = self.base.get_one(key, time, many=many)
        if found is not NotImplemented and (change := self.delta.get(key)) is not None:
            return _shown(change, many)
        return found


def _shown(change: Change, many: bool) -> Any:
    return change.row if change.row is None or not many else [change.row]


def merged(base: MappedTable, changes: list[Change], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table with changes."""
    names = base.manifest.keys
    changed = {each.key for each in changes}
    for batch in base.batches():
        if len(names) == 1:
            column = batch.column(names[0])
            keep = pc.invert(pc.is_in(column, value_set=pa.array(list(changed), column.type)))
        else:
            keys = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            keep = pa.array(np.fromiter((each not in changed for each in keys), bool, batch.num_rows))
        kept = batch.filter(keep)
        columns = [kept.column(each.name) for each in schema]
        decoded = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in columns]
        yield pa.RecordBatch.from_arrays(decoded, names=schema.names)
    rows = [_fields(each, names, base.columns) for each in changes if each.row is not None]
    yield pa.RecordBatch.from_arrays(
        [pa.array([row[f.name] for row in rows], f.type) for f in schema], names=schema.names
    )


def _fields(change: Change, keys: tuple[str, ...], columns: tuple[str, ...]) -> dict[str, Any]:
    assert change.row is not None
    parts = (change.key,) if len(keys) == 1 else change.key
    return {**dict(zip(columns, change.row, strict=True)), **dict(zip(keys, parts, strict=True))}
