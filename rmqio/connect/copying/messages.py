"""Elements of any source as messages of RocketMQ, and as lines of a console."""

from __future__ import annotations

import hashlib
import sys
from decimal import Decimal
from typing import Any

import apache_beam as beam

from rmqio.batches import place_ids
from rmqio.connect.kafka.messages import message_of
from rmqio.connect.kafka.records import KafkaRecord
from rmqio.connect.rows import text_of_decimal, to_json, to_row
from rmqio.errors import SerdeError
from rmqio.model import Message, MessageQueue, Record
from rmqio.near_names import did_you_mean


class ToMessage:
    """A serializer for `WriteToRocketMQ`: rows as JSON, messages of Kafka with their keys and headers.

    Args:
      key: the field that becomes the key.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, element: Any) -> Message:
        if isinstance(element, KafkaRecord):
            return message_of(element)
        row = to_row(element)
        keys = () if self._key is None else (_text_of(row, self._key, "a key"),)
        return Message(to_json(row).encode("utf-8", "backslashreplace"), keys=keys)


class RowId:
    """An `id_fn` for `WriteToRocketMQ`: a field of the row, whose copies then have one id.

    Args:
      field: its values differ from row to row.
    """

    def __init__(self, field: str) -> None:
        self._field = field

    def __call__(self, element: Any) -> str:
        return _text_of(to_row(element), self._field, "an id")


class KeyId:
    """An `id_fn` for `WriteToRocketMQ`: of the row's key and all that it has. The same row has the same id each time.

    Args:
      key: the field that becomes the key. Rows can share it, so it alone is no id.
    """

    def __init__(self, key: str) -> None:
        self._message_of = ToMessage(key)

    def __call__(self, element: Any) -> str:
        message = self._message_of(element)
        text = b"%b\n%b" % (message.keys[0].encode("utf-8", "backslashreplace"), message.body)
        return hashlib.blake2b(text, digest_size=16).hexdigest().upper()


def _text_of(row: dict[str, Any], field: str, use: str) -> str:
    found = row.get(field)
    if found is None or found == "" or isinstance(found, (dict, list)):
        hint = "" if field in row else did_you_mean(field, map(str, row))
        raise SerdeError(f"the row has no {field} that can be {use}{hint}")
    return text_of_decimal(found) if isinstance(found, Decimal) else str(found)


def own_id(record: Record) -> str:
    """Returns the id of the copy of a message of RocketMQ: its own."""
    return record.message_id


def kafka_id(record: KafkaRecord) -> str:
    """Returns the id of the copy of a message of Kafka: the same each time that the message is copied.

    It depends on topic, partition and offset alone. In a topic of RocketMQ, a broker's name cannot be empty, so the id
    is none of a copy from there.
    """
    return place_ids(MessageQueue(record.topic, "", record.partition), (record.offset,))[0]


class PrintFn(beam.DoFn):
    """Prints each element as a line: on the machine of the worker that has it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def start_bundle(self) -> None:
        self._lines = []

    def process(self, element: Any) -> None:
        body: Any = element
        if isinstance(element, KafkaRecord):
            body = element.value if element.value is not None else "null"  # a tombstone
        elif not isinstance(element, dict):
            body = getattr(element, "body", element)
        text = body.decode("utf-8", "backslashreplace") if isinstance(body, bytes) else body
        self._lines.append(text if isinstance(text, str) else to_json(to_row(element)))
        if len(self._lines) >= 100:
            self.finish_bundle()

    def finish_bundle(self) -> None:
        lines, self._lines = self._lines, []
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
