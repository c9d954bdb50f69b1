"""Functions of text: its characters, encodings and URLs. Positions count from 1, in characters."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.functions.registry import define
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure, shown

# Functions that encode: base 64, hexadecimal digits, character sets, hashes.


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


# Functions of URLs.

_URL: Final = re.compile(
    r"(?P<protocol>https?|ftp|file|jar|mailto):(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<ref>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_AUTHORITY: Final = re.compile(r"(?:(?P<user>.*)@)?(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d*))?", re.DOTALL)
_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def url_part(url: str, part: str, key: str | None = None) -> str | None:
    """Returns HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY or USERINFO; of QUERY, also the value of a key.

    None: there is none, or it is not a URL of a protocol that Java knows.
    """
    found = _URL.fullmatch(url.strip())
    of_authority = found and _AUTHORITY.fullmatch(found["authority"] or "")
    if not found or not of_authority:
        return None
    query = found["query"]
    if key is not None:
        if part != "QUERY" or query is None:
            return None
        value = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", query)
        return value[1] if value else None
    match part:
        case "HOST":
            return of_authority["host"]
        case "PATH":
            return found["path"]
        case "QUERY":
            return query
        case "REF":
            return found["ref"]
        case "PROTOCOL":
            return found["protocol"].lower()
        case "FILE":
            return found["path"] if query is None else f"{found['path']}?{query}"
        case "AUTHORITY":
            return found["authority"]
        case "USERINFO":
            return of_authority["user"]
    return None


def url_encode(text: str) -> str:
    """Returns the text as application/x-www-form-urlencoded."""
    return urllib.parse.quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def url_decode(text: str) -> str | None:
    """Returns the text of application/x-www-form-urlencoded; None: an escape is not valid."""
    return None if _ESCAPE.search(text) else urllib.parse.unquote_plus(text)


define("PARSE_URL", "s s [s] -> s", url_part, can_be_null=True)
define("URL_ENCODE", "s -> s", url_encode, can_be_null=True)
define("URL_DECODE", "s -> s", url_decode, can_be_null=True)


LONGEST: Final = 1_000_000
"""Characters that REPEAT, LPAD and RPAD make at most."""


def substring(text: str, start: int, length: int | None = None) -> str | None:
    """Returns the characters from a position, or from the end if it is negative; None: the length is negative."""
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else (len(text) + start if start < 0 else 0)
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def trim(text: str, characters: str = " ") -> str:
    """Returns the text without these characters at both ends."""
    return text.strip(characters) if characters else text


def trim_leading(text: str, characters: str = " ") -> str:
    """Returns the text without these characters at its start."""
    return text.lstrip(characters) if characters else text


def trim_trailing(text: str, characters: str = " ") -> str:
    """Returns the text without these characters at its end."""
    return text.rstrip(characters) if characters else text


def _padding(text: str, length: int, pad: str) -> str | None:
    """The characters that are missing; None: the length is negative, or there is no filling."""
    if length < 0 or not pad:
        return None
    if length > LONGEST:
        raise ValueFailure(f"text of {length} characters would be created; at most a million are allowed")
    missing = max(0, length - len(text))
    return (pad * (missing // len(pad) + 1))[:missing]


def pad_left(text: str, length: int, pad: str) -> str | None:
    """Returns text of that length, filled at its start or cut; None: the length is negative, or there is no filling."""
    filling = _padding(text, length, pad)
    return None if filling is None else filling + text[:length]


def pad_right(text: str, length: int, pad: str) -> str | None:
    """Returns text of that length, filled at its end or cut; None: the length is negative, or there is no filling."""
    filling = _padding(text, length, pad)
    return None if filling is None else text[:length] + filling


def repeated(text: str, times: int) -> str:
    """Returns the text so many times. Raises `ValueFailure` above a million characters."""
    if times > 0 and len(text) * times > LONGEST:
        raise ValueFailure(f"REPEAT would make {len(text) * times} characters; at most a million are allowed")
    return text * max(times, 0)


def replaced(text: str, old: str, new: str) -> str:
    """Returns the text with all that is old replaced. Raises `ValueFailure` if it becomes far too long."""
    if len(new) > len(old) and (len(text) + 1) * len(new) > LONGEST:
        more = (text.count(old)) * (len(new) - len(old))
        if more > 100 * LONGEST:
            raise ValueFailure(f"REPLACE would add {more} characters; at most a hundred million are allowed")
    return text.replace(old, new)


def split_index(text: str, separator: str | int, index: int) -> str | None:
    """Returns the part at a position that counts from 0; None: there is none. An integer is a character's code."""
    if isinstance(separator, int):
        if not 1 <= separator <= 255:
            return None
        separator = chr(separator)
    if index < 0 or not text:
        return None
    parts = text.split(separator) if separator else re.split(r"\s", text)
    return parts[index] if index < len(parts) else None


def split(text: str, separator: str) -> list[str]:
    """Returns the parts between separators; without a separator, the characters."""
    if not text:
        return []
    return text.split(separator) if separator else list(text)


def locate(part: str, text: str, start: int = 1) -> int:
    """Returns where the part first stands in the text, from a position on; 0: nowhere."""
    return text.find(part, max(0, start - 1)) + 1 if part else 1


def _check_occurrence(occurrence: int) -> None:
    if occurrence <= 0:
        raise ValueFailure(f"INSTR looks for occurrence {occurrence}; it must be positive")


def find(text: str, part: str, start: int = 1, occurrence: int = 1) -> int:
    """Returns where the part stands in the text for the nth time; from the end if the start is negative; 0: nowhere."""
    _check_occurrence(occurrence)
    if start == 0:
        return 0
    if start < 0:
        found = find(text[::-1], part[::-1], -start, occurrence)
        return len(text) + 2 - found - len(part) if found else 0
    if not part:
        return 1
    index = start - 2
    for _ in range(min(occurrence, len(text) + 1)):
        index = text.find(part, index + 1)
        if index < 0:
            return 0
    return index + 1 if occurrence <= len(text) else 0


def overlay(text: str, replacement: str, start: int, length: int | None = None) -> str:
    """Returns the text with so many characters from a position on replaced, or as many as the replacement has."""
    if not 1 <= start <= len(text):
        return text
    count = len(replacement) if length is None else length
    rest = text[start - 1 + count :] if count > 0 and start + count <= len(text) else ""
    return text[: start - 1] + replacement + rest


def initcap(text: str) -> str:
    """Returns the text with each word's first letter in upper case, the others in lower case. Only ASCII is a word."""
    found, in_word = [], False
    for each in text:
        is_word = each.isascii() and each.isalnum()
        found.append((each.lower() if in_word else each.upper()) if is_word else each)
        in_word = is_word
    return "".join(found)


def concat_ws(separator: str | None, *parts: str | None) -> str | None:
    """Returns the parts that are not NULL with the separator between them."""
    return None if separator is None else separator.join(each for each in parts if each is not None)


def first_characters(text: str, length: int) -> str:
    """Returns the first characters."""
    return text[:length] if length > 0 else ""


def last_characters(text: str, length: int) -> str:
    """Returns the last characters."""
    return text[-length:] if length > 0 else ""


def code_of_first(text: str) -> int:
    """Returns the first byte of the text in UTF-8, signed as Flink's is; 0: the text is empty."""
    first = text[:1].encode("utf-8", "replace")
    return 0 if not first else first[0] - 256 * (first[0] > 127)


def translated(text: str | None, characters: str | None, others: str | None) -> str | None:
    """Returns the text with each of the characters replaced by the other one at its place, or left out.

    NULL is no characters: all of the text stays if there is nothing to replace.
    """
    if text is None:
        return None
    table: dict[int, str | None] = {}
    others = others or ""
    for position, each in enumerate(characters or ""):
        table.setdefault(ord(each), others[position] if position < len(others) else None)
    return text.translate(table)


def element(index: int | None, *items: Any) -> Any:
    """Returns the item at a position; None: there is none."""
    return items[index - 1] if index is not None and 1 <= index <= len(items) else None


def key_value(text: str | None, pair_end: str | None, key_end: str | None, key: str | None) -> str | None:
    """Returns the value of a key in `k1=v1;k2=v2`, by these separators; None: there is none."""
    if not text or not pair_end or not key_end or key is None:
        return None
    for pair in text.split(pair_end):
        name, found, value = pair.partition(key_end)
        if found and name == key:
            return value
    return None


def substring_index(text: str, separator: str, count: int) -> str:
    """Returns what stands before the nth separator; negative: after it, counted from the end."""
    if not separator or not count:
        return ""
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


def is_alpha(text: Any) -> bool:
    """Returns whether the text consists of letters, and is not empty."""
    return isinstance(text, str) and text.isalpha()


def is_digit(value: Any) -> bool:
    """Returns whether the text consists of digits, and is not empty; an integer does."""
    return value.isdecimal() if isinstance(value, str) else isinstance(value, int)


def is_decimal(value: Any) -> bool:
    """Returns whether the text is a number, as Java reads a double; a number is one."""
    return _DOUBLE.fullmatch(value) is not None if isinstance(value, str) else value is not None


_DOUBLE: Final = re.compile(
    r"[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)


def _items_of_elt(given: Sequence[SqlType]) -> list[SqlType] | None:
    found = types.common_type(given[1:])
    if found is None or found.kind not in ("VARCHAR", "VARBINARY", "NULL"):
        return None
    return [given[0], *[found.nullable(each.is_nullable) for each in given[1:]]]


def _never_null(_: Sequence[SqlType]) -> SqlType:
    return types.BOOLEAN.nullable(False)


define("UPPER", "s -> s", inline="{0}.upper()")
define("LOWER", "s -> s", inline="{0}.lower()")
define("CHAR_LENGTH, CHARACTER_LENGTH, LENGTH", "s -> i", inline="len({0})")
define("OCTET_LENGTH", "s -> i", inline="len({0}.encode())")
define("SUBSTRING, SUBSTR", "s i [i] -> s", substring, can_be_null=True)
define("TRIM, BTRIM", "s [s] -> s", trim)
define("LTRIM", "s [s] -> s", trim_leading)
define("RTRIM", "s [s] -> s", trim_trailing)
define("LPAD", "s i s -> s", pad_left, can_be_null=True)
define("RPAD", "s i s -> s", pad_right, can_be_null=True)
define("POSITION", "s s -> i", inline="{1}.find({0}) + 1")
define("LOCATE", "s s [i] -> i", locate)
define("INSTR", "s s [i] [i] -> i", find, constants={3: _check_occurrence})
define("OVERLAY", "s s i [i] -> s", overlay)
define("REPLACE", "s s s -> s", replaced)
define("REVERSE", "s -> s", inline="{0}[::-1]")
define("REPEAT", "s i -> s", repeated)
define("LEFT", "s i -> s", first_characters)
define("RIGHT", "s i -> s", last_characters)
define("CONCAT", "s ... -> s", inline="''.join(*)")
define("CONCAT_WS", "s s ... -> s | s -> s", concat_ws, is_strict=False, can_be_null=True)
define("INITCAP", "s -> s", initcap)
define("ASCII", "s -> i", code_of_first)
define("CHR", "i -> s", inline="chr({0} & 255) if {0} >= 0 else ''")
define("SPLIT_INDEX", "s s i -> s | s i i -> s", split_index, can_be_null=True)
define("SPLIT", "s s -> as", split)
define("STARTSWITH", "s s -> b | x x -> b", inline="{0}.startswith({1})")
define("ENDSWITH", "s s -> b | x x -> b", inline="{0}.endswith({1})")
define("TRANSLATE, TRANSLATE3", "s s s", translated, is_strict=False,
       returns=lambda given: types.VARCHAR.nullable(given[0].is_nullable))  # fmt: skip
define("ELT", "i any ...", element, is_strict=False, takes=_items_of_elt, returns=lambda given: given[1].nullable())
define("KEYVALUE", "s s s s -> s", key_value, is_strict=False, can_be_null=True)
define("SUBSTRING_INDEX", "s s i -> s", substring_index)
define("IS_ALPHA", "any", is_alpha, is_strict=False, returns=_never_null)
define("IS_DIGIT", "any", is_digit, is_strict=False, returns=_never_null)
define("IS_DECIMAL", "s | n", is_decimal, is_strict=False, returns=_never_null)
