"""`type: WriteToRocketMQ` and `type: RocketMQSql`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import apache_beam as beam

from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory
from rmqio.sending.batches import FailedMessage
from rmqio.sql.tables import (
    PCOLLECTION,
    BadRow,
    Connection,
    ElementsInput,
    Refusal,
    Script,
    SqlError,
    SqlTransform,
    ToTable,
    Translation,
    nearest,
)
from rmqio.transforms import WriteToRocketMQ as Write
from rmqio.yaml.configs import error_output, options_text, quoted, security_of
from rmqio.yaml.read import metadata_type

# `type: RocketMQSql`.


class RocketMQSql(beam.PTransform):
    """The rows of a query, in the SQL of rmqio.

    Args:
      query: the query; CREATE VIEW and SET can stand before it. One input is `PCOLLECTION`; several have their names.
      settings: what SET would set; a number or a truth value is taken as text.
      rowtime: the column that is the time of the rows, for windows; of several inputs, by name.
      error_handling: `{output: NAME}`: rows that cannot be computed go to this output.
    """

    def __init__(
        self,
        query: str,
        settings: Mapping[str, str | int | float] | None = None,
        rowtime: Any | None = None,
        error_handling: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._errors = error_output(error_handling)
        on_error = "fail" if self._errors is None else "output"
        self._transform = SqlTransform(query, settings=settings, rowtime=rowtime, on_error=on_error)

    def expand(self, pcolls: Any) -> Any:
        result = pcolls | "Query" >> self._transform
        return result if self._errors is None else {"rows": result.rows, self._errors: result.errors}


_FORMATS: Final = (
    "json", "raw", "avro", "avro-confluent", "csv", "key-value", "json-confluent", "protobuf", "protobuf-confluent",
)  # fmt: skip
_BESIDE: Final = ("tags", "keys", "sharding_key", "properties", "delay_level", "deliver_at")


class WriteToRocketMQ(beam.PTransform):
    """Writes each row as one message of a topic.

    Args:
      topic: the topic.
      format: of the body: `json` (default), `raw` (one column), `avro`, `csv` or `key-value`.
      schema: of avro, the schema that is written.
      columns: the columns of the body; default: all that are nothing else.
      tags, keys, sharding_key, properties, delay_level, deliver_at: the column that is this part of the message.
      topic_column: the column that is the topic of the row.
      format_options: options of the format, as in CREATE TABLE: `{csv.field-delimiter: ";"}`.
      name_server: the cluster; default: the environment's.
      security: the fields of `rmqio.Security`.
      error_handling: `{output: NAME}`: rows that cannot be written go to this output.
    """

    def __init__(
        self,
        topic: str,
        format: str = "json",
        schema: Any | None = None,
        columns: Sequence[str] | None = None,
        tags: str | None = None,
        keys: str | None = None,
        sharding_key: str | None = None,
        properties: str | None = None,
        delay_level: str | None = None,
        deliver_at: str | None = None,
        topic_column: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        name_server: str | None = None,
        security: Mapping[str, Any] | None = None,
        error_handling: Mapping[str, Any] | None = None,
        *,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        self._topic, self._columns = topic, columns
        self._errors = error_output(error_handling)
        given = (tags, keys, sharding_key, properties, delay_level, deliver_at, topic_column)
        beside = zip((*_BESIDE, "topic"), given, strict=True)
        self._beside = {key: column for key, column in beside if column is not None}
        self._options: dict[str, Any] = {
            "topic": topic,
            "format": str(format).strip().lower(),
            **(format_options or {}),
        }
        if self._options["format"] not in _FORMATS:
            hint = nearest(self._options["format"], _FORMATS) or f"; it can be {', '.join(_FORMATS)}"
            raise LocalError(f"format is {self._options['format']!r}{hint}")
        if self._options["format"] == "avro" and schema is not None:
            self._options["avro.schema"] = schema if isinstance(schema, str) else json.dumps(schema)
        elif schema is not None:
            raise LocalError("schema is for format avro: other formats write the columns of the rows")
        place: dict[str, Any] = {"client_factory": client_factory}
        if client_factory is None:
            place = {"name_server": name_server, "security": security_of(security)}
        self._write = Write(topic, batches=True, with_sent=False, **place)

    def expand(self, pcoll: Any) -> Any:
        on_error = "fail" if self._errors is None else "output"
        try:
            source = ElementsInput.of(PCOLLECTION, pcoll, None, on_error)
        except Refusal as refusal:
            raise SqlError(refusal.message) from None
        script = Script()
        script.catalog.tables[PCOLLECTION] = source.table
        script.run(self._statements({each.name: str(each.type) for each in source.table.columns}))
        (sink,) = script.sinks
        translation = Translation(pcoll.pipeline, Connection(), inputs={id(source.table): source})
        messages = translation.rows(sink.input, ToTable(sink.table, sink.columns), "rows are written once")
        failed = messages | "Messages" >> self._write
        if self._errors is None:
            refused = failed.failed | "Refused" >> beam.Map(_refuse)
            return {"refused": refused}
        name = self._topic
        refused = failed.failed | "Refused" >> beam.Map(lambda each: _bad_row(name, each)).with_output_types(BadRow)
        errors = (*source.errors, refused) | "Errors" >> beam.Flatten()
        errors.element_type = BadRow
        return {self._errors: errors}

    def _statements(self, types: Mapping[str, str]) -> str:
        """The table of the topic, and what is written into it."""
        for name in (*(self._columns or ()), *self._beside.values()):
            if name not in types:
                raise LocalError(
                    f"the rows have no column {name!r}{nearest(name, types) or '; they have ' + ', '.join(types)}"
                )
        body = list(self._columns) if self._columns else [each for each in types if each not in self._beside.values()]
        items = [f"{quoted(name)} {types[name]}" for name in body]
        beside = {f"message {key}": key for key in self._beside}  # a column of the body can have the same name
        items += [f"{quoted(name)} {metadata_type(key)} METADATA FROM '{key}'" for name, key in beside.items()]
        selected = ", ".join(map(quoted, (*body, *self._beside.values())))
        return (
            f"CREATE TABLE written ({', '.join(items)}) {options_text(self._options)};\n"
            f"INSERT INTO written SELECT {selected} FROM {PCOLLECTION}"
        )


def _refuse(failed: FailedMessage) -> None:
    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")


def _bad_row(topic: str, failed: FailedMessage) -> BadRow:
    row = failed.element if failed.message is None else failed.message.body.decode("utf-8", "replace")
    return BadRow(topic, row, f"{failed.error}: {failed.reason}")
