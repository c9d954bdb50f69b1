"""Prints received messages for a terminal or for a script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rmqio.cli.messages.bodies import AvroValue, BodyStyle, body_fields, show_body
from rmqio.command_line.connect import short
from rmqio.command_line.contents import Item
from rmqio.command_line.output import count, duration, print_json, time_text
from rmqio.command_line.terminal import COLUMNS, display_width, safe_line
from rmqio.errors import CorruptMessage, counted
from rmqio.model import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, Record

# Shown elsewhere, or of no interest to the user.
_NOT_SHOWN: Final = frozenset({KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"})
_VALUE_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Printer:
    """Prints messages.

    Args:
      as_json: print one JSON document per line.
      style: how to show bodies; JSON ignores it.
      max_bytes: show at most this much of a body; 0: all of it.
      avro: decodes bodies to values.
    """

    as_json: bool
    style: BodyStyle
    max_bytes: int
    avro: AvroValue | None = None

    def print(self, item: Item) -> None:
        if self.as_json:
            print_json(self.fields(item))
        else:
            print("\n".join(self.lines(item)), end="\n\n")

    def fields(self, item: Item) -> dict[str, Any]:
        """Return a message for a script."""
        queue, content = item.queue, item.content
        place = {
            "topic": queue.topic,
            "broker": queue.broker,
            "queue_id": queue.queue_id,
            "queue_offset": item.offset,
        }
        if isinstance(content, CorruptMessage):
            return place | {"error": content.reason}
        return (
            place
            | {
                "message_id": _utf8(content.message_id),
                "tags": _utf8(content.tags),
                "keys": [_utf8(key) for key in content.keys],
                "sharding_key": _utf8(content.sharding_key),
                "store_timestamp_ms": content.store_timestamp_ms,
                "born_timestamp_ms": content.born_timestamp_ms,
                "born_host": content.born_host,
                "reconsume_times": content.reconsume_times,
                "properties": {_utf8(name): _utf8(value) for name, value in content.properties.items()},
            }
            | body_fields(content, self.max_bytes, self.avro)
        )

    def lines(self, item: Item) -> Iterator[str]:
        """Yield the lines of a message for a terminal."""
        content = item.content
        place = f"{short(item.queue)} @ {item.offset}"
        if isinstance(content, CorruptMessage):
            yield f"{place}   cannot be decoded: {safe_line(content.reason)}"
            return
        yield from self._head(content, f"{place}   {time_text(content.store_timestamp_ms)}")
        yield f"  id        {safe_line(content.message_id)}"
        before_ms = content.store_timestamp_ms - content.born_timestamp_ms
        yield (
            f"  born      {time_text(content.born_timestamp_ms)} at {content.born_host}"
            + (f", {duration(before_ms)} before it was stored" if before_ms >= 1_000 else "")
            + (f", {counted(content.reconsume_times, 'failed attempt')} to consume" if content.reconsume_times else "")
        )
        for name, value in content.properties.items():
            if name not in _NOT_SHOWN:
                yield f"  property  {safe_line(name)} = {_cut(safe_line(value))}"
        shown = show_body(content, self.style, self.max_bytes, self.avro)
        yield f"  body      {shown.kind}"
        yield from (f"  | {line}".rstrip() for line in shown.lines)
        if shown.left_out_bytes:
            yield f"  | ... {count(shown.left_out_bytes)} more bytes (--max_bytes 0 shows them)"

    @staticmethod
    def _head(record: Record, line: str) -> Iterator[str]:
        """Yield the first line with what names the message; what does not fit goes on the next one."""
        names = {"tags": record.tags, "keys": ", ".join(record.keys), "sharding key": record.sharding_key}
        for name, value in names.items():
            if value:
                part = f"   {name} {safe_line(value)}"
                if display_width(line + part) > COLUMNS:
                    yield line
                    line = part.removeprefix(" ")
                else:
                    line += part
        yield line


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}... ({len(text):,} characters)"


def _utf8(text: str | None) -> Any:
    """Return the text, with bytes that were not UTF-8 as `\\xff`: many programs reject lone surrogates."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
