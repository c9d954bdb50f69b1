"""Options and columns of a write with the format `rocketmq`."""

from __future__ import annotations

from typing import Any

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
)

from rmqio.pyspark.options import WriteSettings, write_settings

NAME_SERVER = {"nameserver": "127.0.0.1:9876"}
TEXT = StringType()
TYPES: dict[str, DataType] = {
    "string": TEXT,
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "array<string>": ArrayType(TEXT),
    "array<int>": ArrayType(IntegerType()),
    "map<string,string>": MapType(TEXT, TEXT),
    "map<string,int>": MapType(TEXT, IntegerType()),
}


def struct(text: str) -> StructType:
    """Returns the same as StructType.fromDDL, which needs Spark."""
    fields = [field.split(" ") for field in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def settings(streaming: bool = False, **options: Any) -> WriteSettings:
    given = NAME_SERVER | {name.lower(): str(value) for name, value in options.items()}
    return write_settings(given, streaming=streaming)
