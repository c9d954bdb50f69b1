"""The columns of a read: those of messages, and `value`, whose Avro bodies are decoded in whole Arrow batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
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

from rmqio.addresses import require_folder
from rmqio.errors import LocalError
from rmqio.model import Record
from rmqio.pyspark.options import choice

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry

COLUMN: Final = "value"
VALUE_NAMES: Final = ("valueFormat", "valueSchema", "writerSchema", "valueFraming", "schemaRegistry", "valueErrors")
_FRAMINGS: Final = ("bare", "single_object", "confluent", "container", "auto")
USER_VARIABLE: Final = "SCHEMA_REGISTRY_USER"
PASSWORD_VARIABLE: Final = "SCHEMA_REGISTRY_PASSWORD"
"""A registry's credentials. They are not options, since Spark shows these in plans and event logs."""


@dataclass(frozen=True)
class ValueOptions:
    """The format of bodies, as the options give it. Nothing has been read yet."""

    schema: str
    writer_schema: str | None
    framing: Any
    registry: str | None
    on_error: Any


def value_options(options: Mapping[str, str]) -> ValueOptions | None:
    """Returns the options of the column `value`; None: there is none. Raises `LocalError` for a wrong combination.

    Args:
      options: by their own names; names that are not in `VALUE_NAMES` are ignored.
    """
    given = {name: options[name] for name in VALUE_NAMES if name in options}
    if "valueFormat" not in given:
        if given:
            raise LocalError(f"{next(iter(given))} has no effect without valueFormat")
        return None
    choice(given, "valueFormat", "avro")
    if "valueSchema" not in given:
        raise LocalError(
            "valueFormat is avro, which needs valueSchema: JSON text, the path of an .avsc file on the driver, or with "
            "schemaRegistry a subject"
        )
    framing, errors = choice(given, "valueFraming", *_FRAMINGS), choice(given, "valueErrors", "fail", "null")
    if "writerSchema" in given and framing != "bare":
        raise LocalError(f"writerSchema is for bare bodies; {framing} bodies name their own schema")
    found = ValueOptions(
        given["valueSchema"],
        given.get("writerSchema"),
        framing,
        given.get("schemaRegistry"),
        "raise" if errors == "fail" else "null",
    )
    _check_registry(found)
    return found


def _check_registry(given: ValueOptions) -> None:
    from_subjects = any(map(_may_be_subject, (given.schema, given.writer_schema or "{")))
    if given.registry is None:
        if given.framing == "confluent":
            raise LocalError("valueFraming is confluent, which needs schemaRegistry to look up the ids of schemas")
        return
    if given.framing in ("bare", "container") and not from_subjects:
        raise LocalError(
            f"schemaRegistry has no effect on {given.framing} bodies, and neither schema is the name of a subject"
        )
    if not _is_url(given.registry):
        return
    if "@" in given.registry:  # also if a password breaks the parts of the URL
        raise LocalError(
            f"schemaRegistry has credentials, which Spark would show: set {USER_VARIABLE} and {PASSWORD_VARIABLE} in "
            "the environment of the driver and of the executors"
        )
    if given.framing == "single_object" and not from_subjects:
        raise LocalError("schemaRegistry: a registry at a URL cannot look up the fingerprints of single objects")


def _is_url(registry: str) -> bool:
    return "://" in registry


def _may_be_subject(source: str) -> bool:
    """Does what `is_subject` of `rmqio.serde.avro`, which needs fastavro, does for possible record schemas."""
    return not source.endswith(".avsc") and not source.lstrip().startswith(("{", "[", '"'))


class Values:
    """Makes the column from records. Picklable: schemas are read on the driver and travel as text.

    Raises `LocalError` for text that is not a schema, or a schema without a type in Spark, and the registry's errors.
    """

    def __init__(self, options: ValueOptions) -> None:
        try:
            from rmqio.serde.avro.arrow import AvroToArrow
            from rmqio.serde.avro.schema import schema_of
        except ImportError as error:
            raise LocalError("valueFormat avro needs fastavro: pip install 'rmqio[avro,spark]'") from error
        registry = None if options.registry is None else _registry(options.registry)
        more: dict[str, Any] = {"framing": options.framing, "registry": registry, "on_error": options.on_error}
        name, written = "writerSchema", None
        try:
            if options.writer_schema is not None:
                written = schema_of(options.writer_schema, registry)
            name = "valueSchema"
            wanted = schema_of(options.schema, registry)
            schema = AvroToArrow(wanted, written, **more).schema
            schema = pa.schema([_for_spark(field) for field in schema])
            self._decoder: Final = AvroToArrow(wanted, written, **more, cast_to=schema)
        except LocalError as error:
            raise LocalError(f"{name}: {error}") from error
        self.arrow_type: Final = pa.struct(list(schema))
        spark_type = from_arrow_type(self.arrow_type, True)  # local timestamps have no zone in Spark either
        assert isinstance(spark_type, StructType)
        self.type: Final = spark_type

    def column(self, records: Sequence[Record]) -> pa.StructArray:
        """Returns the column. Raises `SerdeError` for the first undecodable body, unless such bodies become null."""
        return self._decoder.decode(records)


def _for_spark(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _spark_type(field.type))


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Returns the Arrow type that Spark takes: any value can be null, timestamps count microseconds.

    Times of day become numbers: Spark's type for them is switched off in supported versions.
    """
    if pa.types.is_struct(kind):
        return pa.struct([_for_spark(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _spark_type(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.int32() if pa.types.is_time32(kind) else pa.int64()
    return kind


def _registry(place: str) -> SchemaRegistry:
    from rmqio.serde.registry import BasicAuth, FolderRegistry, RestRegistry

    if not _is_url(place):
        return FolderRegistry(require_folder(place))
    user = os.environ.get(USER_VARIABLE)
    return RestRegistry(place, auth=None if user is None else BasicAuth(user, _password))


def _password() -> str:
    """Returns the password when a request needs it, so that no pickle holds it. Raises `LocalError`."""
    try:
        return os.environ[PASSWORD_VARIABLE]
    except KeyError:
        raise LocalError(
            f"{USER_VARIABLE} is set in the environment of the driver, and {PASSWORD_VARIABLE} is not in that of this "
            "process: set both for the driver and the executors"
        ) from None


# The columns of a message, and Arrow batches of records with the requested columns.

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
