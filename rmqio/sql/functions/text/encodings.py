"""Functions that encode: base 64, hexadecimal digits, character sets, hashes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from typing import Final

from rmqio.sql.functions.registry import define
from rmqio.sql.values import ValueFailure, shown


def to_base64(data: str | bytes) -> str:
    """Returns the base 64 of text in UTF-8, or of bytes."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode("ascii")


def from_base64(text: str | bytes) -> str:
    """Returns the text in UTF-8 whose base 64 it is. Raises `ValueFailure`."""
    return bytes_of_base64(text).decode("utf-8", "replace")


def bytes_of_base64(text: str | bytes) -> bytes:
    """Returns the bytes whose base 64 it is. Raises `ValueFailure`."""
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueFailure(f"{shown(text)} is not base 64") from None


def hexadecimal(value: int | str | bytes) -> str:
    """Returns the digits of an integer of 64 bits, or those of the bytes of text in UTF-8."""
    if isinstance(value, int):
        return format(value & 0xFFFF_FFFF_FFFF_FFFF, "X")
    return (value.encode() if isinstance(value, str) else value).hex().upper()


_DIGITS: Final = re.compile(r"[0-9a-fA-F]*")


def from_hexadecimal(text: str) -> bytes | None:
    """Returns the bytes; None: there is another character. A first digit without a second one counts as 00."""
    if not _DIGITS.fullmatch(text):
        return None
    return bytes.fromhex(f"00{text[1:]}" if len(text) % 2 else text)


_CHARACTER_SETS: Final = {
    "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-8": "utf-8", "UTF-16BE": "utf-16-be", "UTF-16LE": "utf-16-le",
    "UTF-16": "utf-16", "GBK": "gbk", "GB2312": "gb2312", "GB18030": "gb18030",
}  # fmt: skip


def _character_set(name: str) -> str:
    found = _CHARACTER_SETS.get(name.upper())
    if found is None:
        raise ValueFailure(f"{shown(name)} is not a character set; they are {', '.join(_CHARACTER_SETS)}")
    return found


def encode(text: str, character_set: str) -> bytes:
    """Returns the text in a character set; a character that it lacks becomes `?`. Raises `ValueFailure`."""
    name = _character_set(character_set)
    if name == "utf-16":
        return b"\xfe\xff" + text.encode("utf-16-be", "replace")
    return text.encode(name, "replace")


def decode(data: bytes, character_set: str) -> str:
    """Returns the text of bytes in a character set; what is not valid becomes U+FFFD. Raises `ValueFailure`."""
    name = _character_set(character_set)
    if name == "utf-16" and data[:2] not in (b"\xfe\xff", b"\xff\xfe"):
        name = "utf-16-be"
    return data.decode(name, "replace")


def _hash(name: str) -> Callable[[str | bytes], str]:
    new = getattr(hashlib, name)

    def call(data: str | bytes) -> str:
        return new(data.encode() if isinstance(data, str) else data, usedforsecurity=False).hexdigest()  # type: ignore[no-any-return]

    return call


def sha2(data: str | bytes, bits: int) -> str:
    """Returns the SHA-2 hash of that many bits. Raises `ValueFailure` if there is none."""
    return _hash(f"sha{_bits(bits)}")(data)


def _bits(bits: int) -> int:
    if bits not in (224, 256, 384, 512):
        raise ValueFailure(f"SHA2 has 224, 256, 384 or 512 bits, not {bits}")
    return bits


def hash_code(text: str) -> int:
    """Returns the absolute value of Java's hash of the text."""
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        found = (31 * found + (units[index] << 8) + units[index + 1]) & 0xFFFF_FFFF
    signed = found - (1 << 32) if found >> 31 else found
    return abs(signed) if signed != -(1 << 31) else signed


define("TO_BASE64", "s -> s | x -> s", to_base64)
define("FROM_BASE64", "s -> s | x -> s", from_base64)
define("BYTES OF BASE64", "s -> x | x -> x", bytes_of_base64)  # CAST(FROM_BASE64(...) AS BYTES)
define("HEX", "i -> s | s -> s", hexadecimal)
define("UNHEX", "s -> x", from_hexadecimal, can_be_null=True)
define("ENCODE", "s s -> x", encode, constants={1: _character_set})
define("DECODE", "x s -> s", decode, constants={1: _character_set})
for _name in ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"):
    define(_name, "s -> s | x -> s", _hash(_name.lower()))
define("SHA2", "s i -> s | x i -> s", sha2, constants={1: _bits})
define("HASH_CODE", "s -> i", hash_code)
