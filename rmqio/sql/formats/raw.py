"""Bodies without a format: the body is the one physical column, as in Flink's format `raw`.

Numbers have their fixed number of bytes; a BOOLEAN is one byte. Text that the character set does not have fails, also
if Python writes it as another text, as the yen sign is a backslash in Shift JIS; Flink replaces it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from rmqio.serde.plain import text_encoding
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.base import Fields, RowFailure, bounded, filled
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

_CODES: Final = {"TINYINT": "b", "SMALLINT": "h", "INTEGER": "i", "BIGINT": "q", "FLOAT": "f", "DOUBLE": "d"}
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape"})
"""Codecs of Python that write text in other text."""
_KNOWN: Final = ("VARBINARY", "VARCHAR", "BOOLEAN", *_CODES)


def require_one_column(table: Table) -> None:
    """Raises `Refusal` unless the table has one physical column, of a type that the format has."""
    columns = [each for each in table.columns if each.is_physical]
    if len(columns) != 1:
        raise Refusal(
            f"the format raw has one column, the body, and {table.name} has {len(columns)} that are not metadata", None
        )
    if columns[0].type.kind not in _KNOWN:
        raise Refusal(f"the format raw has BYTES, STRING, BOOLEAN and numbers, not {columns[0].type.text}", None)


class Raw:
    """Reads and writes the column."""

    def __init__(self, name: str, kind: SqlType, options: FormatOptions) -> None:
        self.name, self.kind = name, kind
        charset = options.text("raw_charset", "UTF-8").strip()
        found = text_encoding(charset)
        if found is None or found in _NO_CHARSETS:
            raise options.refusal("raw_charset", f"is {charset!r}, which is not a character set")
        self.charset: Final = found
        endianness = options.one_of("raw_endianness", ("big-endian", "little-endian"), "big-endian")
        self.number = struct.Struct((">" if endianness[0] == "b" else "<") + _CODES.get(kind.kind, "b"))

    def reader(self) -> Callable[[bytes], Any]:
        """Returns what makes the value of a body. It raises `ValueFailure`."""
        number, charset = self.number, self.charset
        match self.kind.kind:
            case "VARBINARY":
                return bytes
            case "VARCHAR" if charset == "utf-8":
                return bytes.decode
            case "VARCHAR":
                return lambda body: body.decode(charset)
            case "BOOLEAN":
                return lambda body: number.unpack(body)[0] != 0
        return lambda body: number.unpack(body)[0]

    def write(self, value: Any) -> bytes:
        """Returns the body. Raises `ValueFailure`."""
        if value is None:
            raise ValueFailure(f"column {self.name}: NULL cannot be a body")
        match self.kind.kind:
            case "VARBINARY":
                return filled(value)
            case "VARCHAR":
                return filled(self._encoded(value))
        return self.number.pack(value)

    def _encoded(self, text: str) -> bytes:
        try:
            found = text.encode(self.charset)
            if self.charset == "utf-8" or found.decode(self.charset) == text:
                return found
            wrong = text
        except UnicodeEncodeError as error:
            wrong = text[error.start]
        except UnicodeDecodeError:
            wrong = text
        raise ValueFailure(f"column {self.name}: {bounded(wrong)!r} is not in the character set {self.charset}")


class RawDecoder:
    """See `formats.base.Decoder`."""

    def __init__(self, raw: Raw, fields: Fields) -> None:
        self._raw = raw
        self.fast = raw.reader()
        self.columns = ["{}" for _ in fields]
        self.converters = [None for _ in fields]

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        try:
            return (self.fast(body),)
        except UnicodeDecodeError as error:
            reason = f"the body is not {self._raw.charset} text: {error.reason} at byte {error.start}"
        except struct.error:
            size = self._raw.number.size
            reason = f"a {self._raw.kind.text} has {size} bytes, and the body {len(body)}: {body[:20].hex()}"
        raise RowFailure(reason, self._raw.name)


class RawEncoder:
    """See `formats.base.Encoder`."""

    def __init__(self, raw: Raw) -> None:
        self.constants: dict[str, Any] = {"raw_write": raw.write}

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        return f"raw_write({names[0]})"
