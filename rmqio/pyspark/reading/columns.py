"""The columns of a message, and Arrow batches of records with the requested columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqio.errors import LocalError
from rmqio.model import Record
from rmqio.pyspark.reading.values import COLUMN, Values

_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())


def _text(value: str | None) -> str | None:
    """Replaces what is not UTF-8, which a record keeps as surrogates, by U+FFFD: Arrow and Spark hold Unicode only."""
    if value is None or value.isascii():
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _properties(record: Record) -> list[tuple[str, str]]:
    return [(_text(name) or "", _text(value) or "") for name, value in record.properties.items()]


_Get = Callable[[Record], Any]
COLUMNS: Final[dict[str, tuple[DataType, pa.DataType, _Get]]] = {
    "topic": (StringType(), pa.string(), attrgetter("topic")),
    "brokerName": (StringType(), pa.string(), attrgetter("broker")),
    "queueId": (IntegerType(), pa.int32(), attrgetter("queue_id")),
    "queueOffset": (LongType(), pa.int64(), attrgetter("queue_offset")),
    "messageId": (StringType(), pa.string(), lambda r: _text(r.message_id)),
    "tags": (StringType(), pa.string(), lambda r: _text(r.tags)),
    "keys": (ArrayType(StringType()), _TEXTS, lambda r: [_text(key) for key in r.keys]),
    "body": (BinaryType(), pa.binary(), attrgetter("body")),
    "properties": (MapType(StringType(), StringType()), _PROPERTIES, _properties),
    "shardingKey": (StringType(), pa.string(), lambda r: _text(r.sharding_key)),
    "bornTimestamp": (TimestampType(), _TIME, lambda r: 1_000 * r.born_timestamp_ms),
    "storeTimestamp": (TimestampType(), _TIME, lambda r: 1_000 * r.store_timestamp_ms),
    "bornHost": (StringType(), pa.string(), attrgetter("born_host")),
    "storeHost": (StringType(), pa.string(), attrgetter("store_host")),
    "reconsumeTimes": (IntegerType(), pa.int32(), attrgetter("reconsume_times")),
    "flag": (IntegerType(), pa.int32(), attrgetter("flag")),
    "sysFlag": (IntegerType(), pa.int32(), attrgetter("sys_flag")),
    "commitLogOffset": (LongType(), pa.int64(), attrgetter("commit_log_offset")),
    "preparedTransactionOffset": (LongType(), pa.int64(), attrgetter("prepared_transaction_offset")),
}
"""Spark type, Arrow type and getter of each column. Names are those of Apache's rocketmq-spark if it has the column."""

SOURCE_SCHEMA: Final = StructType([StructField(name, kind) for name, (kind, _, _) in COLUMNS.items()])


def checked_names(schema: StructType, values: Values | None = None) -> tuple[str, ...]:
    """Returns the columns of a user's schema, the only ones to read. Raises `LocalError` for other columns or types."""
    types = {name: kind for name, (kind, _, _) in COLUMNS.items()} | ({COLUMN: values.type} if values else {})
    for field in schema.fields:
        if field.name not in types:
            hint = ", and value where valueFormat is given" if field.name == COLUMN else ""
            raise LocalError(f"there is no column {field.name!r}; a message has {', '.join(COLUMNS)}{hint}")
        expected, found = types[field.name], field.dataType
        if found != expected:
            words = f"the column {field.name} has the type {expected.simpleString()}"
            if found.simpleString() == expected.simpleString():
                raise LocalError(f"{words} without NOT NULL and comments")
            raise LocalError(f"{words}, not {found.simpleString()}; cast it after reading")
    return tuple(schema.fieldNames())


def to_batch(records: Sequence[Record], names: Sequence[str], values: Values | None = None) -> pa.RecordBatch:
    """Returns records as rows with the columns `names`. Raises `SerdeError` if `values` does."""
    fields, arrays = [], []
    for name in names:
        if name == COLUMN and values is not None:
            fields.append(pa.field(name, values.arrow_type))
            arrays.append(values.column(records))
            continue
        _, kind, get = COLUMNS[name]
        fields.append(pa.field(name, kind))
        arrays.append(pa.array(list(map(get, records)), kind))
    if not arrays:  # the schema is empty
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
