"""The column `value`: Avro bodies in Spark's types, decoded in whole Arrow batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from rmqio.addresses import require_folder
from rmqio.errors import LocalError
from rmqio.model import Record
from rmqio.pyspark.options.given import choice

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
            from rmqio.serde.avro.schemas.schema import schema_of
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
