"""Converts rows to messages: the columns that can be written, and Arrow batches as messages with topics and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from rmqio.errors import LocalError, RmqioError
from rmqio.model import Message
from rmqio.wire.properties import user_properties


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_body(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_keys(kind: DataType) -> bool:
    return _is_text(kind) or (isinstance(kind, ArrayType) and _is_text(kind.elementType))


def _is_properties(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, IntegralType)


WRITE_COLUMNS: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    "body": (_is_body, "string or binary"),
    "topic": (_is_text, "string"),
    "tags": (_is_text, "string"),
    "keys": (_is_keys, "string or array<string>"),
    "properties": (_is_properties, "map<string,string>"),
    "shardingKey": (_is_text, "string"),
    "messageId": (_is_text, "string"),
    "delayTimeLevel": (_is_number, "int or bigint"),
    "deliveryTimeMs": (_is_number, "int or bigint"),
}
"""A check of a column's type, and the accepted types in words. Names are those of reads if these have the column."""

_BY_LOWER: Final = {name.lower(): name for name in WRITE_COLUMNS}
_NO_PROPERTIES: Final = Message(b"x").properties
_NO_KEYS: Final[tuple[str, ...]] = ()


class RowIllegal(RmqioError):
    """A row that can never be sent. Its task fails, however often it is retried."""


def checked_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """Returns the columns of a DataFrame to write, under their names in `WRITE_COLUMNS`, regardless of case.

    Raises `LocalError` for an unknown or duplicate column, for a wrong type, and if body or topic is missing.
    """
    names: list[str] = []
    for field in schema.fields:
        name = _BY_LOWER.get(field.name.lower())
        if name is None:
            raise LocalError(
                f"the column {field.name!r} cannot be written; a message takes {', '.join(WRITE_COLUMNS)}. "
                "Drop it, rename it, or put it into body or properties"
            )
        if name in names:
            raise LocalError(f"there are two columns {name}")
        fits, words = WRITE_COLUMNS[name]
        if not fits(field.dataType):
            raise LocalError(f"the column {name} has the type {field.dataType.simpleString()}; it must be {words}")
        names.append(name)
    if "body" not in names:
        raise LocalError("there is no column body, which every message must have")
    if "topic" not in names and topic is None:
        raise LocalError("there is no topic to write to: give the option topic, or a column topic")
    return tuple(names)


class RowMessageMaker:
    """Converts rows to messages, column by column.

    Args:
      names: the names of the columns, in their order.
      topic: the topic of all messages; None: the column topic names it.
      drops_reserved: whether to drop properties with reserved names (otherwise, sending rejects them).
    """

    def __init__(self, names: Sequence[str], topic: str | None, *, drops_reserved: bool) -> None:
        self._names = names
        self._topic = topic
        self._drops_reserved = drops_reserved

    def make(self, batch: pa.RecordBatch) -> Iterator[tuple[Message, str, str | None]]:
        """Returns message, topic and id (None: a random one) of each row. A null body or topic becomes None."""
        given = dict(zip(self._names, batch.columns, strict=True))

        def values(name: str) -> Iterable[Any]:
            return given[name].to_pylist() if name in given else repeat(None)

        fields = zip(
            _bodies(given["body"]),
            repeat(None),  # the topic of a message is that of its batch
            values("tags"),
            _keys(given["keys"]) if "keys" in given else repeat(_NO_KEYS),
            self._properties(given["properties"]) if "properties" in given else repeat(_NO_PROPERTIES),
            values("shardingKey"),
            values("delayTimeLevel"),
            values("deliveryTimeMs"),
        )
        # Does what Message's constructor does, without its keyword handling, since this runs once per row
        messages = map(tuple.__new__, repeat(Message), fields)
        topics = values("topic") if self._topic is None else repeat(self._topic)
        return zip(messages, topics, values("messageId"), strict=False)  # endless if there is no column

    def _properties(self, column: pa.Array) -> Iterator[Any]:
        for pairs in column.to_pylist():
            if not pairs:
                yield _NO_PROPERTIES
            elif self._drops_reserved:
                yield user_properties(dict(pairs))
            else:
                yield dict(pairs)


def _bodies(column: pa.Array) -> list[Any]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())  # the same bytes: Arrow's text is UTF-8
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    bodies: list[Any] = column.to_pylist()
    return bodies


def _keys(column: pa.Array) -> Iterator[tuple[str, ...]]:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return (tuple(keys.split()) if keys else _NO_KEYS for keys in column.to_pylist())  # as it is stored
    return (tuple(keys) if keys else _NO_KEYS for keys in column.to_pylist())
