"""Bodies formatted for a terminal: text, JSON, Avro, or hexadecimal; cut to a size."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from rmqio.command_line.output import size
from rmqio.command_line.terminal import safe
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Record
from rmqio.near_names import nearest

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
