"""Elements of any source as messages of RocketMQ, and as lines of a console."""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam

from rmqio.connect.rows import to_json, to_row
from rmqio.errors import SerdeError
from rmqio.model import TOMBSTONE, Message


class ToMessage:
    """A serializer for `WriteToRocketMQ`: rows as JSON, messages of Kafka with their keys and headers.

    Args:
      key: the field that becomes the key.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, element: Any) -> Message:
        kind = type(element).__name__
        if kind == "KafkaRecord":
            return _of_kafka(element)
        row = to_row(element)
        keys: tuple[str, ...] = ()
        if self._key is not None:
            found = row.get(self._key)
            if found is None or isinstance(found, (dict, list)):
                raise SerdeError(f"the row has no {self._key} that can be a key")
            keys = (str(found),)
        return Message(to_json(row).encode("utf-8", "backslashreplace"), keys=keys)


def _of_kafka(record: Any) -> Message:
    """The key orders the messages, and finds them if a key of RocketMQ can be so."""
    key = None if record.key is None else record.key.decode("utf-8", "backslashreplace")
    keys = (key,) if key and key.split() == [key] else ()
    properties = {name: (value or b"").decode("utf-8", "backslashreplace") for name, value in record.headers}
    if record.value is None:
        if not keys:
            raise SerdeError("a tombstone of Kafka needs a key without spaces: it deletes what the key names")
        return Message(b"", keys=keys, sharding_key=key, properties={**properties, TOMBSTONE: "true"})
    return Message(record.value, keys=keys, sharding_key=key or None, properties=properties)


class PrintFn(beam.DoFn):
    """Prints each element as a line: on the machine of the worker that has it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def start_bundle(self) -> None:
        self._lines = []

    def process(self, element: Any) -> None:
        body = element
        if type(element).__name__ == "KafkaRecord":
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
