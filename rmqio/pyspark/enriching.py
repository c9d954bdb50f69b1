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

    Raises `LocalError` if a name is wrong; in a task, if the table cannot be loaded, or a key or a column has a type
    that does not fit.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType, StructType

    from rmqio.enrich.lookups import Schedule, Spec, Wanted, key_fields, meant_or_known

    if how not in ("left", "inner"):
        raise LocalError(f'how is {how!r}; it must be "left" or "inner"')
    fields = key_fields(key)
    for name in fields:
        if name not in frame.columns:
            raise LocalError(f"the frame has no column {name}{meant_or_known(name, frame.columns)}")
        if (count := frame.columns.count(name)) > 1:
            raise LocalError(
                f"the frame has {count} columns {name}, which is in the key: drop or rename all but one before enrich. "
                f'A join with on="{name}" keeps one; with a condition, it keeps both'
            )
    if not isinstance(columns, Mapping):
        raise LocalError(f'columns is {columns!r}; it must be a dict of names and Spark\'s types: {{"tier": "string"}}')
    for name in columns:
        if name in frame.columns:
            raise LocalError(f"the frame has a column {name} already: rename it")
    if table.valid_from is not None:
        raise LocalError("tables with valid_from and valid_to are for Enrich in Beam: a frame has no time of a row")
    spec = Spec(tuple(fields.values()), tuple(columns), duplicates)
    schema = StructType(list(frame.schema.fields))
    kinds: dict[str, pa.DataType] = {}
    for name, kind in columns.items():
        try:
            made = DataType.fromDDL(kind)
            kinds[name] = to_arrow_type(made)
        except PySparkException as error:
            reason = str(error).strip().splitlines()[0]
            raise LocalError(f"the type of {name} is {kind!r}, which is not one of Spark's: {reason}") from error
        schema = schema.add(name, made)
    run = _Enriching(Wanted(table, spec), Schedule(refresh_s), tuple(fields), how, duplicates == "all", kinds)
    return frame.mapInArrow(run, schema)


class _Enriching:
    """The function for `mapInArrow`. It travels to the workers."""

    def __init__(
        self,
        wanted: Any,
        schedule: Any,
        fields: tuple[str, ...],
        how: str,
        many: bool,
        kinds: Mapping[str, pa.DataType],
    ) -> None:
        self._wanted, self._schedule, self._fields, self._how, self._many = wanted, schedule, fields, how, many
        self._kinds = kinds
        """The types that Spark reads the added columns as. It does not compare them with those that it gets."""

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
                    [*batch.columns, *self._fitted(fast.columns, rows.columns)],
                    names=[*batch.schema.names, *rows.columns],
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
        added = self._fitted(added, rows.columns)
        return pa.RecordBatch.from_arrays([*kept.columns, *added], names=[*batch.schema.names, *rows.columns])

    def _fitted(self, columns: Sequence[pa.Array], names: Sequence[str]) -> list[pa.Array]:
        return [
            _as_type(each, self._kinds.get(name, each.type), name) for each, name in zip(columns, names, strict=True)
        ]


def _as_type(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Returns a column as the type that Spark expects, if no value changes. Raises `LocalError`."""
    import pyarrow as pa

    there = column.type
    if pa.types.is_timestamp(there) and pa.types.is_timestamp(wanted):
        wanted = pa.timestamp("us", there.tz)
    if there.equals(wanted):
        return column
    try:
        if not _fits(there, wanted):
            raise TypeError("that is another kind of value")
        made = _cast(column, wanted)
        _check_unchanged(column, made)
        return made
    except (TypeError, pa.ArrowException) as error:
        raise LocalError(
            f"the column {name} of the table is {there}, which does not fit the type that columns= gives it, "
            f"{wanted} in Arrow: {error}"
        ) from error


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Casts a column. Decimals become floats through text: Arrow's own cast makes 99.99 to 99.99000000000001."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type) and pa.types.is_floating(wanted):
        column = column.cast(pa.string())
    return column.cast(wanted)


def _check_unchanged(column: pa.Array, made: pa.Array) -> None:
    """Raises `TypeError` if a cast has changed a fraction: Arrow checks only casts from and to whole numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (_is_fraction(column.type) and _is_fraction(made.type)):
        return
    try:
        back = _cast(made, column.type)
    except pa.ArrowException as error:
        raise TypeError(f"a value would change ({error})") from error
    is_same = pc.equal(column, back)
    if pa.types.is_floating(column.type):
        is_same = pc.or_(is_same, pc.is_nan(column))
    if pc.all(is_same).as_py() is False:
        place = pc.index(is_same, False).as_py()
        raise TypeError(f"{column[place]} would become {made[place]}")


def _is_fraction(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_decimal(kind))


def _fits(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type can be of another one without a change of their kind."""
    from pyarrow import types

    if types.is_nested(there) or types.is_nested(wanted):
        return _fits_nested(there, wanted)
    kinds = (
        lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind),
        lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind),
        lambda kind: types.is_integer(kind) or _is_fraction(kind),
        types.is_boolean,
        types.is_date,
        types.is_timestamp,
        types.is_duration,
    )
    return types.is_null(there) or any(holds(there) and holds(wanted) for holds in kinds)


def _fits_nested(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether all parts fit. Arrow would fill fields that are not there with nulls, and read numbers from texts."""
    from pyarrow import types

    if types.is_null(there):
        return True
    if types.is_struct(there) and types.is_struct(wanted):
        given, fields = {each.name: each.type for each in there}, {each.name: each.type for each in wanted}
        is_same = given.keys() == fields.keys() and len(given) == there.num_fields and len(fields) == wanted.num_fields
        return is_same and all(_fits_part(given[name], kind) for name, kind in fields.items())
    if types.is_map(there) and types.is_map(wanted):
        return _fits_part(there.key_type, wanted.key_type) and _fits_part(there.item_type, wanted.item_type)
    is_list = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(holds(there) for holds in is_list) and any(holds(wanted) for holds in is_list):
        return _fits_part(there.value_type, wanted.value_type)
    return False


def _fits_part(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the values of a part fit. Only those of a whole column are checked for a change of fractions."""
    is_rounded = _is_fraction(there) and _is_fraction(wanted) and not there.equals(wanted)
    return _fits(there, wanted) and not is_rounded
