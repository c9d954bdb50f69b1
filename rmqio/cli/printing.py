"""Prints received messages for a terminal or for a script."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from rmqio.command_line.cluster import Item, short
from rmqio.command_line.output import (
    COLUMNS,
    count,
    display_width,
    duration,
    print_json,
    safe,
    safe_line,
    size,
    time_text,
)
from rmqio.errors import CorruptMessage, LocalError, SerdeError, counted
from rmqio.hints import nearest
from rmqio.model import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, Record

# Bodies formatted for a terminal: text, JSON, Avro, or hexadecimal; cut to a size.

BodyStyle = Literal["auto", "text", "json", "hex", "none"]
STYLES: Final = ("auto", "text", "json", "hex", "none")

_HEX_ROW: Final = 16
_CONTROLS: Final = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MAX_CONTROLS: Final = 0.25
"""Text with a larger share of control characters is shown as bytes; other text with escapes."""

AvroValue = Callable[[Record], Any]


class Shown(NamedTuple):
    """A body, ready to print."""

    kind: str
    lines: list[str]
    left_out_bytes: int = 0


def avro_reader(path: str) -> AvroValue:
    """Return a decoder of bodies written with the schema in a file. Raises `LocalError`."""
    try:
        from rmqio.serde.avro import AvroDeserializer
    except ImportError as error:
        raise LocalError(f"--avro_schema: {error}") from error
    if not os.path.exists(path):
        folder, name = os.path.split(path)
        there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        near = nearest(name, [each for each in there if each.endswith(".avsc")])
        advice = f"; did you mean {os.path.join(folder, near)}?" if near else ""
        raise LocalError(f"--avro_schema {path}: the file does not exist{advice}")
    try:
        return AvroDeserializer(Path(path))
    except OSError as error:
        raise LocalError(f"--avro_schema {path}: {error.strerror}") from error


def show_body(record: Record, style: BodyStyle, max_bytes: int, avro: AvroValue | None = None) -> Shown:
    """Format a body as lines that are safe for a terminal.

    With `max_bytes` 0 there is no limit. Hexadecimal shows a quarter of it, since it takes four times the room.
    """
    body = record.body
    if style == "none":
        return Shown(_kind(body, "not shown"), [])
    if avro is not None:
        try:
            return _lines("Avro", body, _json_text(avro(record)).encode(errors="backslashreplace"), max_bytes)
        except SerdeError as error:
            return _hex(body, max_bytes, f"not of this Avro schema ({safe(str(error))})")
    if style == "hex":
        return _hex(body, max_bytes, "")
    text = _text(body)
    if style == "auto" and text is None:
        return _hex(body, max_bytes, "binary")
    kind = "text" if text is not None else "not UTF-8"
    if style in ("auto", "json") and text is not None and (value := _json(text)) is not None:
        kind = "JSON"
        if style == "json":
            return _lines(kind, body, _json_text(value).encode(errors="backslashreplace"), max_bytes)
    return _lines(kind, body, body, max_bytes)


def body_fields(record: Record, max_bytes: int, avro: AvroValue | None = None) -> dict[str, Any]:
    """Return a body for a script: `body` as text, `body_base64` if it is not UTF-8, `value` if a schema is given."""
    body = record.body
    fields: dict[str, Any] = {"body_bytes": len(body)}
    if avro is not None:
        try:
            fields["value"] = json.loads(_json_text(avro(record)))
        except SerdeError as error:
            fields["error"] = str(error)
    cut = body[:max_bytes] if max_bytes else body
    try:
        return fields | {"body": _whole_characters(body, cut).decode()}
    except UnicodeDecodeError:
        return fields | {"body_base64": base64.b64encode(cut).decode()}


def _kind(body: bytes, what: str) -> str:
    return ", ".join(part for part in (what, size(len(body))) if part)


def _text(body: bytes) -> str | None:
    """Return the body as text, or None if it is not text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    is_text = "\0" not in text and len(_CONTROLS.findall(text)) <= _MAX_CONTROLS * len(text)
    return text if is_text else None


def _json(text: str) -> Any:
    """Parse an object or array; return None for anything else."""
    from rmqio.serde.strict_json import json_value

    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json_value(text)
    except (ValueError, RecursionError):
        return None


def _json_text(value: Any) -> str:
    from rmqio.serde.strict_json import JsonEncoder

    return JsonEncoder(indent=2, default=_as_text, allow_nan=True).encode(value)


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _whole_characters(whole: bytes, cut: bytes) -> bytes:
    """Return a prefix of UTF-8 text without the character that the cut has split."""
    end = len(cut)
    while len(cut) - end < 4 and 0 < end < len(whole) and whole[end] & 0xC0 == 0x80:
        end -= 1
    return cut[:end]


def _lines(kind: str, body: bytes, shown: bytes, max_bytes: int) -> Shown:
    cut = _whole_characters(shown, shown[:max_bytes]) if 0 < max_bytes < len(shown) else shown
    text = cut.decode(errors="surrogateescape")
    lines = safe(text.replace("\r\n", "\n")).rstrip("\n").split("\n") if text else []
    return Shown(_kind(body, kind), lines, len(shown) - len(cut))


def _hex(body: bytes, max_bytes: int, what: str) -> Shown:
    rows = max(1, max_bytes // 4 // _HEX_ROW) if max_bytes else -(-len(body) // _HEX_ROW)
    cut = body[: rows * _HEX_ROW]
    return Shown(_kind(body, what), list(_hex_rows(cut)), len(body) - len(cut))


def _hex_rows(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _HEX_ROW):
        row = data[start : start + _HEX_ROW]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:06x}  {row.hex(' '):<{_HEX_ROW * 3 - 1}}  {letters}"


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
