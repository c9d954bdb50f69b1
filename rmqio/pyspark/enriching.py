"""`enrich`: adds columns of a dimension table to a DataFrame, in plain PySpark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqio.errors import LocalError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rmqio.enrich import Table


def enrich(
    frame: DataFrame,
    table: Table,
    key: str | Sequence[str] | Mapping[str, str],
    columns: Mapping[str, str],
    *,
    how: str = "left",
    duplicates: str = "error",
    refresh_s: float | None = 3600.0,
) -> DataFrame:
    """Returns the frame with columns of a table, of the newest version that a worker has when a task begins.

    Args:
      frame: a DataFrame, also of a stream.
      table: see `rmqio.enrich.Table`.
      key: the columns of the frame that are the table's key; a dict says what the table's columns are called.
      columns: the columns to add, and Spark's type of each, such as {"tier": "string", "visits": "bigint"}.
      how: "left": a row without another one has nulls; "inner": it is left out.
      duplicates, refresh_s: as in `rmqio.enrich.Enrich`.

    Raises `LocalError` if a name is wrong; in a task, if the table cannot be loaded, or a key has another type.
    """
    from pyspark.sql.types import DataType, StructType

    from rmqio.enrich.lookups import Schedule, Spec, Wanted, nearest

    if how not in ("left", "inner"):
        raise LocalError(f'how is {how!r}; it must be "left" or "inner"')
    fields = (
        dict(key) if isinstance(key, Mapping) else {each: each for each in ([key] if isinstance(key, str) else key)}
    )
    for name in fields:
        if name not in frame.columns:
            raise LocalError(f"the frame has no column {name}{nearest(name, frame.columns)}")
    for name in columns:
        if name in frame.columns:
            raise LocalError(f"the frame has a column {name} already: rename it")
    if table.valid_from is not None:
        raise LocalError("tables with valid_from and valid_to are for Enrich in Beam: a frame has no time of a row")
    spec = Spec(tuple(fields.values()), tuple(columns), duplicates)
    schema = StructType(list(frame.schema.fields))
    for name, kind in columns.items():
        schema = schema.add(name, DataType.fromDDL(kind))
    run = _Enriching(Wanted(table, spec), Schedule(refresh_s), tuple(fields), how, duplicates == "all")
    return frame.mapInArrow(run, schema)


class _Enriching:
    """The function for `mapInArrow`. It travels to the workers."""

    def __init__(self, wanted: Any, schedule: Any, fields: tuple[str, ...], how: str, many: bool) -> None:
        self._wanted, self._schedule, self._fields, self._how, self._many = wanted, schedule, fields, how, many

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from rmqio.enrich.lookups import acquire

        lease = acquire(self._wanted, self._schedule)
        rows = lease.rows()
        for batch in batches:
            yield self._enriched(batch, rows)

    def _enriched(self, batch: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
        import pyarrow as pa

        from rmqio.enrich.lookups import found_columns

        if not self._many:
            fast = found_columns(rows, [batch.column(name) for name in self._fields])
            if fast is not None:
                made = pa.RecordBatch.from_arrays(
                    [*batch.columns, *fast.columns], names=[*batch.schema.names, *rows.columns]
                )
                return made if self._how == "left" else made.filter(pa.array(fast.is_there))
        parts = [batch.column(name).to_pylist() for name in self._fields]
        keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        places: list[int] = []
        found: list[Any] = []
        nulls = (None,) * len(rows.columns)
        for place, row in enumerate(rows.get(keys, many=self._many)):
            if row is NotImplemented:
                kinds = ", ".join(rows.key_types)
                raise LocalError(
                    f"the key {', '.join(self._fields)} has another type than the table's, which is {kinds}"
                )
            if row is None:
                if self._how == "inner":
                    continue
                row = [nulls] if self._many else nulls
            for each in row if self._many else (row,):
                places.append(place)
                found.append(each)
        columns = list(zip(*found, strict=True)) if found else [() for _ in rows.columns]
        kept = batch if len(places) == batch.num_rows and not self._many else batch.take(pa.array(places, pa.int64()))
        added = [pa.array(each, rows.type_of(name)) for each, name in zip(columns, rows.columns, strict=True)]
        return pa.RecordBatch.from_arrays([*kept.columns, *added], names=[*batch.schema.names, *rows.columns])
