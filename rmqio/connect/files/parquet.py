"""Rows to Parquet and back.

PyArrow drops fields that a struct does not have, changes values that a type cannot hold, and stops at the first value
that it rejects. Here such a row is refused, and the others are written.
"""

from __future__ import annotations

import datetime as dt
import io
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from rmqio.connect.rows import is_beyond_float
from rmqio.connect.sink import RowRefused
from rmqio.errors import LocalError, SerdeError
from rmqio.hints import did_you_mean
from rmqio.serde.strict_json import JsonNumber

# Values that PyArrow would change to fit a type: 2.5 would be 2 among integers, and a time would be its day.

_NUMBERS: Final[tuple[Any, ...]] = (numbers.Number, UUID)


def misfit(pa: Any, value: Any, kind: Any, path: str, *, is_given: bool) -> str | None:
    """Says which part of a value its type would drop or change; None: PyArrow takes it as it is, or refuses it.

    Args:
      is_given: whether a user has chosen the type. Then integers can be times in its unit, and times can be days.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        return _misfit_of_object(pa, value, kind, path, is_given=is_given) if pa.types.is_struct(kind) else None
    if isinstance(value, (list, tuple, set, frozenset)):
        if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
            for part in value:
                if found := misfit(pa, part, kind.value_type, path, is_given=is_given):
                    return found
        return None
    name, safe = _rule(pa, kind)
    if type(value) in safe or not _is_changed(value, name, is_given=is_given):
        return None
    return f"{path} is {value!r:.60}, which {kind} would change"


def is_safe(pa: Any, values: list[Any], kind: Any) -> bool:
    """Whether no value of a column needs a closer look. Fast."""
    _, safe = _rule(pa, kind)
    return not pa.types.is_nested(kind) and safe.issuperset(map(type, values))


def _misfit_of_object(pa: Any, value: dict[Any, Any], kind: Any, path: str, *, is_given: bool) -> str | None:
    for name, part in value.items():
        place = kind.get_field_index(name) if isinstance(name, str) else -1
        if place < 0:
            return f"{path} has no field {name}"
        if found := misfit(pa, part, kind.field(place).type, f"{path}.{name}", is_given=is_given):
            return found
    return None


@lru_cache(maxsize=1024)
def _rule(pa: Any, kind: Any) -> tuple[str, frozenset[type]]:
    """The rule of a type, and the types of Python of which it changes no value."""
    types, nothing = pa.types, type(None)
    if types.is_integer(kind):
        return "integer", frozenset((int, nothing))
    if types.is_floating(kind):
        return "float", frozenset((float, int, nothing))
    if types.is_date(kind):
        return "date", frozenset((dt.date, nothing))
    if types.is_temporal(kind):
        return "time", frozenset((dt.datetime, dt.time, dt.timedelta, nothing))
    return "any", frozenset((str, int, float, bool, bytes, nothing))


def _is_changed(value: Any, name: str, *, is_given: bool) -> bool:
    if name == "date" and isinstance(value, dt.datetime):
        return not is_given
    if name == "any" or not isinstance(value, _NUMBERS):
        return False
    if name == "float":
        return isinstance(value, bool) or is_beyond_float(value)
    if name == "integer":
        if isinstance(value, JsonNumber):  # it is not the integer of its float
            return True
        try:
            return bool(int(value) != value)
        except (ValueError, OverflowError):  # NaN and infinity
            return True
    return not (is_given and isinstance(value, int) and not isinstance(value, bool))


Refused = list[tuple[Any, Exception]]

GROUP_ROWS: Final = 50_000
"""Rows of a group. If there is no schema, the first group decides on the types."""


def check_schema(schema: Any, columns: tuple[str, ...] | None) -> None:
    """Raises `LocalError`."""
    import pyarrow as pa

    if not isinstance(schema, pa.Schema):
        raise LocalError(f"schema is {schema!r:.60}; that of parquet must be a pyarrow.Schema")
    for name in columns or ():
        if name not in schema.names:
            hint = did_you_mean(name, schema.names)
            raise LocalError(f"columns names {name}, which the schema does not have{hint}")


def write_rows(rows: Iterable[dict[str, Any]], names: Sequence[str], schema: Any, file: Any) -> Refused:
    """Writes rows to an open file, by a schema or that of the rows. Returns the refused ones with their errors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    refused: Refused = []
    writer: Any = None
    is_given = schema is not None
    decimals = {each.name: make for each in schema or () if (make := _decimals(pa.types, each.type)) is not None}
    for chunk in _chunks(rows):
        good = []
        for row in chunk:
            if (unknown := next((name for name in row if name not in names), None)) is not None:
                hint = did_you_mean(unknown, names)
                refused.append((row, RowRefused(f"the file has no column {unknown}{hint}")))
            else:
                good.append(
                    {name: decimals[name](row.get(name)) if name in decimals else row.get(name) for name in names}
                )
        if not good:
            continue
        if schema is None:
            schema = pa.schema([(name, _type_of(pa, [row[name] for row in good])) for name in names])
        table, bad = _table(pa, _whole(pa, good, schema, refused, is_given=is_given), schema)
        refused.extend(bad)
        writer = writer or pq.ParquetWriter(file, schema)
        writer.write_table(table)
    if writer is None:
        writer = pq.ParquetWriter(file, schema or pa.schema([(name, pa.string()) for name in names]))
    writer.close()
    return refused


def read_rows(file: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of an open file. Raises `SerdeError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.seekable():  # it was compressed as a whole, and a Parquet file is read from its end
        file = io.BytesIO(file.read())
    try:
        parquet = pq.ParquetFile(pa.PythonFile(file, "r"))
        names = parquet.schema_arrow.names
        for place, name in enumerate(names):
            if name in names[:place]:
                raise SerdeError(f"two columns have the name {name}")
        for batch in parquet.iter_batches():
            yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise SerdeError(str(error)) from error


def _decimals(types: Any, kind: Any) -> Callable[[Any], Any] | None:
    """The function that makes decimals of floats, as JSON has no others and Arrow takes none; None: there are none."""
    if types.is_decimal(kind):
        return lambda value: Decimal(repr(value)) if isinstance(value, float) else value
    if types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        made = {field.name: make for field in fields if (make := _decimals(types, field.type)) is not None}
        return (lambda value: _with(made, value) if isinstance(value, dict) else value) if made else None
    part = kind.item_type if types.is_map(kind) else getattr(kind, "value_type", None)
    item = None if part is None else _decimals(types, part)
    if item is None:
        return None
    if types.is_map(kind):
        return lambda value: _with(dict.fromkeys(value, item), value) if isinstance(value, dict) else value
    if types.is_dictionary(kind):
        return item
    return lambda value: [item(each) for each in value] if isinstance(value, (list, tuple)) else value


def _with(makes: dict[Any, Callable[[Any], Any]], value: dict[Any, Any]) -> dict[Any, Any]:
    return {name: makes[name](each) if name in makes else each for name, each in value.items()}


def _chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == GROUP_ROWS:
            yield chunk
            chunk = []
    yield chunk


def _errors(pa: Any) -> tuple[type[Exception], ...]:
    return (pa.ArrowException, TypeError, ValueError, ArithmeticError)


def _type_of(pa: Any, values: list[Any]) -> Any:
    """The type of a column: of all its values, or of the first one that has a type."""
    try:
        return _storable(pa, pa.array(values).type)
    except _errors(pa):
        for value in values:
            if value is not None:
                try:
                    return _storable(pa, pa.array([value]).type)
                except _errors(pa):
                    continue
    return pa.string()


def _storable(pa: Any, kind: Any) -> Any:
    """A type that files can have. A column that has had no value yet is text, so that later groups can have one."""
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and kind.num_fields == 0):
        return pa.string()
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([(field.name, _storable(pa, field.type)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(_storable(pa, kind.value_type))
    return kind


def _whole(
    pa: Any, rows: list[dict[str, Any]], schema: Any, refused: Refused, *, is_given: bool
) -> list[dict[str, Any]]:
    """The rows of which PyArrow neither drops nor changes a part. The others are refused."""
    doubtful = [each for each in schema if not is_safe(pa, [row.get(each.name) for row in rows], each.type)]
    if not doubtful:
        return rows
    kept = []
    for row in rows:
        problems = (misfit(pa, row.get(each.name), each.type, each.name, is_given=is_given) for each in doubtful)
        found = next(filter(None, problems), None)
        if found is None:
            kept.append(row)
        else:
            refused.append((row, RowRefused(f"it does not fit: {found}")))
    return kept


def _table(pa: Any, rows: list[dict[str, Any]], schema: Any) -> tuple[Any, Refused]:
    """A table of the rows that fit. Halves them to find those that do not."""
    try:
        return pa.Table.from_pylist(rows, schema=schema), []
    except _errors(pa) as error:
        if len(rows) == 1:
            return pa.Table.from_pylist([], schema=schema), [(rows[0], RowRefused(f"it does not fit: {error}"))]
    middle = len(rows) // 2
    (first, bad), (second, more) = (_table(pa, part, schema) for part in (rows[:middle], rows[middle:]))
    return pa.concat_tables([first, second]), bad + more
