"""Tables, views and functions by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rmqio.sql import types
from rmqio.sql.catalog.options import TableOptions, table_options
from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.types import SqlType
from rmqio.sql.user.definition import UserFunction

# Metadata columns: what a message has beside its body, to read and to write.


@dataclass(frozen=True, slots=True)
class Metadata:
    """A kind of metadata.

    Attributes:
      key: its name in METADATA FROM.
      type: the type of its values, to which others are converted.
      read: Python's expression for it, of `record`; empty: it cannot be read.
      written: the field of a message that it becomes; empty: it is read-only.
      comment: what it is, for the documentation.
    """

    key: str
    type: SqlType
    read: str
    written: str
    comment: str


_MAP: Final = SqlType("MAP", elements=(types.VARCHAR.nullable(False), types.VARCHAR))
_STRING: Final = types.VARCHAR.nullable(False)
_LONG: Final = types.BIGINT.nullable(False)
_TIME: Final = types.TIMESTAMP_LTZ.nullable(False)

METADATA: Final = {
    each.key: each
    for each in (
        Metadata("topic", _STRING, "record.topic", "topic", "the topic; written: the topic that the row goes to"),
        Metadata("broker", _STRING, "record.broker", "", "the name of the broker"),
        Metadata("queue_id", types.INTEGER.nullable(False), "record.queue_id", "", "the number of the queue"),
        Metadata("offset", _LONG, "record.queue_offset", "", "the offset in the queue"),
        Metadata("message_id", _STRING, "record.message_id", "", "the producer's unique id"),
        Metadata("keys", types.VARCHAR, "' '.join(record.keys) or None", "keys", "business keys, separated by spaces"),
        Metadata("tags", types.VARCHAR, "record.tags", "tags", "the tag"),
        Metadata("sharding_key", types.VARCHAR, "record.sharding_key", "sharding_key", "messages of one stay in order"),
        Metadata("born_timestamp", _TIME, "record.born_timestamp_ms * 1000", "", "when the producer created it"),
        Metadata("store_timestamp", _TIME, "record.store_timestamp_ms * 1000", "", "when the broker stored it"),
        Metadata("reconsume_times", types.INTEGER.nullable(False), "record.reconsume_times", "", "failed deliveries"),
        Metadata("properties", _MAP, "record.properties", "properties", "the properties; written: the user's own"),
        Metadata("delay_level", types.INTEGER, "", "delay_level", "delivery after a delay: level 1 is 1 s, 18 is 2 h"),
        Metadata("deliver_at", types.TIMESTAMP_LTZ, "", "deliver_at_ms", "the broker delivers it then"),
    )
}  # fmt: skip

ALIASES: Final = {
    "tag": "tags", "key": "keys", "queue_offset": "offset", "queueoffset": "offset", "queueid": "queue_id",
    "queue": "queue_id", "partition": "queue_id", "msg_id": "message_id", "msgid": "message_id",
    "messageid": "message_id", "brokername": "broker", "broker_name": "broker", "shardingkey": "sharding_key",
    "born_time": "born_timestamp", "borntimestamp": "born_timestamp", "timestamp": "store_timestamp",
    "store_time": "store_timestamp", "storetimestamp": "store_timestamp", "headers": "properties",
    "reconsumetimes": "reconsume_times", "delay": "delay_level", "delaylevel": "delay_level",
}  # fmt: skip
"""Other names of them, in lower case: those of Kafka's connector and of Java's client."""


def metadata_named(key: str) -> Metadata | None:
    """Returns the metadata with this name; None: there is none."""
    folded = key.lower()
    return METADATA.get(ALIASES.get(folded, folded))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. A physical one is in the body; metadata is beside it; a computed one has its expression."""

    name: str
    type: SqlType
    metadata: Metadata | None = None
    is_virtual: bool = False
    expression: nodes.Expression | None = None

    @property
    def is_physical(self) -> bool:
        return self.metadata is None and self.expression is None

    @property
    def is_written(self) -> bool:
        """Whether INSERT INTO gives it a value."""
        return self.expression is None and not self.is_virtual


@dataclass(frozen=True, slots=True)
class Table:
    """A table: CREATE TABLE, checked. `watermark`: its column, and the expression by which it follows."""

    name: str
    columns: tuple[Column, ...]
    options: TableOptions
    primary_key: tuple[str, ...] = ()
    watermark: tuple[str, nodes.Expression] | None = None

    def column(self, name: str) -> Column | None:
        """Returns the column with this name; None: there is none."""
        return next((each for each in self.columns if each.name == name), None)


@dataclass(frozen=True, slots=True)
class View:
    """A view: its query is planned anew wherever it is used."""

    name: str
    columns: tuple[nodes.Name, ...]
    query: nodes.Query


class FurtherTables(Protocol):
    """Tables that no statement has created, such as those of a schema registry."""

    def names(self) -> Sequence[str]:
        """Returns the names of all of them."""

    def table(self, name: str) -> Table | None:
        """Returns the table, always the same object; None: there is none. Raises `Refusal` if it cannot be used."""

    def text(self, name: str) -> str:
        """Returns the CREATE TABLE of a table that was returned."""


@dataclass(slots=True)
class Catalog:
    """Tables, views and functions that earlier statements have created, and tables from elsewhere."""

    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    functions: dict[str, UserFunction] = field(default_factory=dict)
    further: FurtherTables | None = None

    def create_table(self, statement: statements.CreateTable) -> None:
        """Adds a table. Raises `Refusal` if it is not valid."""
        if self._is_new(statement.name, statement.if_not_exists):
            self.tables[statement.name.text] = table_of(statement)

    def create_view(self, statement: statements.CreateView) -> None:
        """Adds a view. Raises `Refusal` if the name is taken."""
        if self._is_new(statement.name, statement.if_not_exists):
            self.views[statement.name.text] = View(statement.name.text, statement.columns, statement.query)

    def _is_new(self, name: nodes.Name, if_not_exists: bool) -> bool:
        kind = "table" if name.text in self.tables else "view" if name.text in self.views else None
        if kind is not None and not if_not_exists:
            raise Refusal(f"there is a {kind} {name} already", name.span)
        return kind is None

    def drop(self, statement: statements.Drop) -> None:
        """Removes a table, a view or a function. Raises `Refusal` if it is not there."""
        kept: dict[str, object] = {
            "TABLE": self.tables, "VIEW": self.views, "FUNCTION": self.functions,
        }[statement.kind]  # type: ignore[assignment]  # fmt: skip
        name = statement.name
        written = self.function_named(name.text) if statement.kind == "FUNCTION" else None
        if kept.pop(written or name.text, None) is None and not statement.if_exists:
            if (
                other := "VIEW" if name.text in self.views else "TABLE" if name.text in self.tables else None
            ) is not None:
                raise Refusal(f"{name} is a {other.lower()}: DROP {other}", name.span)
            raise Refusal(f"there is no {statement.kind.lower()} {name}{nearest(name.text, kept)}", name.span)

    def function_named(self, name: str) -> str | None:
        """Returns the name as CREATE FUNCTION has written it: names of functions ignore case. None: there is none."""
        return next((each for each in self.functions if each.upper() == name.upper()), None)

    def relation(self, name: nodes.Name) -> Table | View:
        """Returns the table or view. Raises `Refusal` if there is none."""
        found = self.tables.get(name.text) or self.views.get(name.text)
        if found is None and self.further is not None:
            found = self._further(name)
        if found is None:
            known = [*self.tables, *self.views, *(self.further.names() if self.further is not None else ())]
            raise Refusal(f"there is no table {name}{nearest(name.text, known) or _known(known)}", name.span)
        return found

    def _further(self, name: nodes.Name) -> Table | None:
        assert self.further is not None
        try:
            return self.further.table(name.text)
        except Refusal as refusal:
            raise Refusal(f"{name} cannot be used: {refusal.message}", name.span) from None

    def table(self, name: nodes.Name) -> Table:
        """Returns the table. Raises `Refusal` if there is none."""
        if name.text in self.views and name.text not in self.tables:
            raise Refusal(f"{name} is a view: INSERT INTO needs a table", name.span)
        found = self.relation(name)
        assert isinstance(found, Table)
        return found


def _known(names: list[str]) -> str:
    return f"; there are {', '.join(sorted(names)[:10])}" if names else "; there is no CREATE TABLE before"


def table_of(statement: statements.CreateTable) -> Table:
    """Returns the table that CREATE TABLE describes. Raises `Refusal` if it is not valid."""
    columns: dict[str, Column] = {}
    key: tuple[nodes.Name, ...] = ()
    watermark: statements.Watermark | None = None
    for item in statement.items:
        match item:
            case statements.Watermark():
                if watermark is not None:
                    raise Refusal("a table can have only one watermark", item.span)
                watermark = item
            case statements.PrimaryKey():
                key = _one_key(key, item.columns, item)
            case statements.Period():
                pass
            case _:
                if item.name.text in columns:
                    raise Refusal(f"the column {item.name} is listed twice", item.name.span)
                columns[item.name.text] = _column(item)
                if isinstance(item, statements.PhysicalColumn) and item.is_key:
                    key = _one_key(key, (item.name,), item)
    for name in key:
        _require_column(columns, name)
    options = _options(statement)
    for each in options.keys:
        if each not in columns:
            raise Refusal(
                f"keyColumns names {each}, which is not a column{nearest(each, columns)}", statement.name.span
            )
    if options.tag_column is not None:
        _make_tag(columns, options, statement.name)
    if watermark is not None:
        _require_column(columns, watermark.column)
    return Table(
        statement.name.text,
        tuple(columns.values()),
        options,
        tuple(each.text for each in key),
        None if watermark is None else (watermark.column.text, watermark.expression),
    )


def _make_tag(columns: dict[str, Column], options: TableOptions, at: nodes.Name) -> None:
    """The column of a dynamic tag that is not in the body is the tag itself."""
    name = options.tag_column or ""
    column = columns.get(name)
    if column is None:
        raise Refusal(f"dynamicTagColumn names {name}, which is not a column{nearest(name, columns)}", at.span)
    if not column.is_physical or column.type.kind != "VARCHAR":
        raise Refusal(
            f"dynamicTagColumn names {name}, which must be a STRING of the body: other columns become a tag as STRING "
            "METADATA FROM 'tags'",
            at.span,
        )
    if not options.is_tag_in_body:
        columns[name] = Column(name, column.type.nullable(), METADATA["tags"])


def _options(statement: statements.CreateTable) -> TableOptions:
    try:
        return table_options(statement.options, statement.name.text)
    except Refusal as refusal:
        raise Refusal(refusal.message, refusal.span or statement.name.span) from None


def _one_key(before: tuple[nodes.Name, ...], key: tuple[nodes.Name, ...], item: nodes.Node) -> tuple[nodes.Name, ...]:
    if before:
        raise Refusal("a table can have only one PRIMARY KEY", item.span)
    return key


def _require_column(columns: dict[str, Column], name: nodes.Name) -> None:
    if name.text not in columns:
        raise Refusal(f"there is no column {name}{nearest(name.text, columns)}", name.span)


def _column(item: statements.PhysicalColumn | statements.MetadataColumn | statements.ComputedColumn) -> Column:
    if isinstance(item, statements.ComputedColumn):
        return Column(item.name.text, types.NULL, expression=item.expression)
    found = types.resolve(item.type, keeps_not_null=True)
    if isinstance(item, statements.PhysicalColumn):
        return Column(item.name.text, found.nullable(item.is_nullable and not item.is_key))
    metadata = metadata_named(item.key or item.name.text)
    if metadata is None:
        key = item.key or item.name.text
        raise Refusal(f"{key!r} is not metadata of a message{nearest(key, METADATA)}; there are {', '.join(METADATA)}",
                      item.span)  # fmt: skip
    if not metadata.written and not item.is_virtual:
        raise Refusal(f"the metadata {metadata.key!r} is read-only: declare the column VIRTUAL", item.span)
    if not _is_like(found, metadata.type):
        raise Refusal(
            f"the metadata {metadata.key!r} is {metadata.type.text}, not {found.text}: declare it so, and CAST it",
            item.type.span,
        )
    return Column(item.name.text, found.nullable(metadata.type.is_nullable), metadata, item.is_virtual)


def _is_like(given: types.SqlType, wanted: types.SqlType) -> bool:
    if given.kind in types.TIMESTAMPS and wanted.kind in types.TIMESTAMPS:
        return given.kind == wanted.kind or wanted.kind == "TIMESTAMP_LTZ"
    if given.kind in ("INTEGER", "BIGINT") and wanted.kind in ("INTEGER", "BIGINT"):
        return types.BITS[given.kind] >= types.BITS[wanted.kind]
    elements = zip(given.elements, wanted.elements, strict=False)
    return given.kind == wanted.kind and all(_is_like(each, other) for each, other in elements)
