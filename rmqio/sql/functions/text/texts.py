"""Functions of text. Positions count from 1, in characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.functions.registry import define
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure

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
