"""JSON that goes on to another system, with all digits of its numbers: a float has 17 of them."""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Self

_SURELY_EXACT: Final = 16
"""Characters of a number with a point and without an exponent: a float gives back each decimal of 15 digits."""
_MARK: Final = secrets.token_hex(16)
"""Before the digits of a number that is a text until the rest is JSON. No data can have it."""
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


class JsonNumber(float):
    """A number of JSON that no float holds, such as 0.12345678901234567890.

    It is the nearest float, so that code that knows floats only works as before. Its `repr` is the number as it is
    written, from which `json_text` and `Decimal` make the same number.
    """

    __slots__ = ("_digits",)
    _digits: str

    def __new__(cls, digits: str) -> Self:
        found = super().__new__(cls, digits)
        found._digits = digits
        return found

    def __repr__(self) -> str:
        return self._digits

    def __reduce__(self) -> tuple[type[JsonNumber], tuple[str]]:
        return JsonNumber, (self._digits,)


def exact_float(text: str) -> float:
    """Returns the float of a number that is written with a point or an exponent; if it is another number, `JsonNumber`.

    For the argument `parse_float` of a decoder.
    """
    if len(text) <= _SURELY_EXACT and "e" not in text and "E" not in text:
        return float(text)
    found = float(text)
    try:
        is_same = Decimal(text) == Decimal(repr(found))
    except ArithmeticError:  # its exponent has more than 18 digits
        is_same = False
    return found if is_same else JsonNumber(text)


_DECODER: Final = json.JSONDecoder(parse_float=exact_float)


def json_value(text: str | bytes | bytearray) -> Any:
    """Returns the value of a text of JSON; numbers as `exact_float` does. Raises `ValueError` and `RecursionError`."""
    if not isinstance(text, str):
        text = text.decode(
            json.detect_encoding(text), "surrogatepass"
        )  # as `json.loads`, which makes a decoder each time
    return _DECODER.decode(text)


def json_text(
    value: Any,
    *,
    default: Callable[[Any], Any] | None = None,
    ensure_ascii: bool = False,
    indent: int | None = None,
    allow_nan: bool = False,
    sort_keys: bool = False,
) -> str:
    """Returns JSON, by default in one line; a `JsonNumber` as it was written. The arguments are those of `json.dumps`.

    Raises `TypeError`, `ValueError` and `RecursionError`; `ValueError` also for NaN and infinity, which JSON lacks.
    """
    encode = _encoder(default, ensure_ascii, indent, allow_nan, sort_keys).encode
    try:
        has_digits = _has_digits(value)
    except RecursionError:  # the encoder says whether it contains itself, or is too deep
        has_digits = False
    if not has_digits:
        return encode(value)
    first, *others = encode(_marked(value)).split(f'"{_MARK}')
    return "".join([first, *(each.replace('"', "", 1) for each in others)])  # the quote behind the digits


@functools.lru_cache(maxsize=16)
def _encoder(
    default: Callable[[Any], Any] | None, ensure_ascii: bool, indent: int | None, allow_nan: bool, sort_keys: bool
) -> json.JSONEncoder:
    separators = (",", ":") if indent is None else None
    return json.JSONEncoder(
        default=default, ensure_ascii=ensure_ascii, indent=indent, separators=separators, allow_nan=allow_nan,
        sort_keys=sort_keys,
    )  # fmt: skip


def _has_digits(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return type(value) is JsonNumber
    return any(_has_digits(each) for each in value if type(each) not in _PLAIN)


def _marked(value: Any) -> Any:
    """The value with texts in place of its numbers: the encoder of `json` would write the nearest float."""
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(each) for each in value]
    return f"{_MARK}{value!r}" if type(value) is JsonNumber else value
