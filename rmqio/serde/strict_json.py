"""JSON as RFC 8259 has it: Python's own parser made as strict, and numbers with all their digits."""

from __future__ import annotations

import functools
import json
import math
import secrets
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, NoReturn, Self, TypeVar

from rmqio.loading import extension

Text = TypeVar("Text", str, bytes, bytearray, bytes | bytearray)

_SURELY_EXACT: Final = 16
"""Characters of a number with a point and without an exponent: a float gives back each decimal of 15 digits."""
_MARK: Final = secrets.token_hex(16).upper()
"""Before the digits of a number that is a text until the rest is JSON. No data can have it. Capitals, which are rare in
JSON, are searched for faster.
"""
_SPACE: Final = b" \t\r\n"
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_alive: Final[set[int]] = set()
"""The ids of all `JsonNumber`s: as long as there is none, nothing needs to be searched for them."""


may_be_rounded: Final[Callable[[bytes | bytearray | str], bool]] = getattr(
    extension("rmqio.serde._numbers"), "may_be_rounded", lambda text: True
)
"""Whether JSON may have a number that `exact_float` does not make a float. False only if it has none: then a decoder
needs no function for each number. Always true without the C extension.
"""


class JsonNumber(float):
    """A number of JSON that no float holds, such as 0.12345678901234567890.

    It is the nearest float for code that takes subclasses of float. Libraries that look at the exact type refuse it, as
    `msgspec.json.encode` does with a `TypeError`: give them `float(x)`. Its `repr` is the number as it is written, from
    which `JsonEncoder` and `Decimal` make the same number.
    """

    __slots__ = ("_digits",)
    _digits: str

    def __new__(cls, digits: str) -> Self:
        found = super().__new__(cls, digits)
        found._digits = digits
        _alive.add(id(found))
        return found

    def __del__(self, forget: Callable[[int], None] = _alive.discard) -> None:
        forget(id(self))

    def __repr__(self) -> str:
        return self._digits

    def __reduce__(self) -> tuple[type[JsonNumber], tuple[str]]:
        return JsonNumber, (self._digits,)


def exact_float(text: str) -> float:
    """Returns the float of a number that is written with a point or an exponent; if it is another number, `JsonNumber`.

    For the argument `parse_float` of a decoder.
    """
    found = float(text)
    if len(text) <= _SURELY_EXACT and "e" not in text and "E" not in text:
        return found
    shown = repr(found)
    if shown == text or shown.rstrip("0") == text.rstrip("0"):  # the same, or 12.000000000000000000
        return found
    try:
        is_same = Decimal(text) == Decimal(shown)
    except ArithmeticError:  # its exponent has more than 18 digits
        is_same = False
    return found if is_same else JsonNumber(text)


def decoded(text: Text, quick: Callable[[Text], Any], exact: Callable[[Text], Any]) -> Any:
    """Returns what `quick` makes of JSON; if it may have rounded a number, what `exact` does.

    Args:
      quick, exact: decoders that differ by `exact_float` only, which costs several times as much as a number does.
    """
    if not may_be_rounded(text):
        return quick(text)
    write = _writer()
    if write is None:
        return exact(text)
    value = quick(text)
    return value if _is_written_so(value, text, write) else exact(text)


@functools.cache
def _writer() -> Callable[[Any], bytes] | None:
    """An encoder that costs a fraction of what a call for each number does. Imported late: it takes 50 ms."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec.json.encode


def _is_written_so(value: Any, text: bytes | bytearray | str, write: Callable[[Any], bytes]) -> bool:
    """Whether a value is written as it was, but for white space: then floats give back all numbers."""
    try:
        body = text.encode() if isinstance(text, str) else text
        written = write(value)
    except (ValueError, TypeError, RecursionError):  # half of a surrogate pair, for example
        return False
    return written == body or written.translate(None, _SPACE) == body.translate(None, _SPACE)


_DECODER: Final = json.JSONDecoder()
_EXACT_DECODER: Final = json.JSONDecoder(parse_float=exact_float)


def json_value(text: str | bytes | bytearray) -> Any:
    """Returns the value of a text of JSON; numbers as `exact_float` does. Raises `ValueError` and `RecursionError`."""
    if not isinstance(text, str):
        text = text.decode(
            json.detect_encoding(text), "surrogatepass"
        )  # as `json.loads`, which makes a decoder each time
    return decoded(text, _DECODER.decode, _EXACT_DECODER.decode)


class JsonEncoder(json.JSONEncoder):
    """Writes JSON, by default in one line; a `JsonNumber` as it was written. The arguments are those of `json.dumps`.

    `encode` raises `TypeError`, `ValueError` and `RecursionError`; `ValueError` also for NaN and infinity, which JSON
    lacks.
    """

    def __init__(
        self,
        *,
        default: Callable[[Any], Any] | None = None,
        ensure_ascii: bool = False,
        indent: int | None = None,
        allow_nan: bool = False,
        sort_keys: bool = False,
        skipkeys: bool = False,
    ) -> None:
        super().__init__(
            default=None if default is None else lambda value: _marked(default(value)),
            ensure_ascii=ensure_ascii, indent=indent, allow_nan=allow_nan, sort_keys=sort_keys,
            separators=(",", ":") if indent is None else None, skipkeys=skipkeys,
        )  # fmt: skip

    def encode(self, value: Any) -> str:
        text = super().encode(_marked(value))
        if _MARK not in text:
            return text
        first, *others = text.split(f'"{_MARK}')
        return "".join([first, *(each.replace('"', "", 1) for each in others)])  # the quote behind the digits


def has_digits(value: Any) -> bool:
    """Returns whether a value of JSON has a `JsonNumber`. It costs next to nothing while there is none at all."""
    try:
        return bool(_alive) and _has_digits(value)
    except RecursionError:  # who takes the value says whether it contains itself, or is too deep
        return False


def _has_digits(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return type(value) is JsonNumber
    return not _PLAIN.issuperset(map(type, value)) and any(map(_has_digits, value))


def _marked(value: Any) -> Any:
    """The value with texts in place of its numbers: the encoder of `json` would write the nearest float."""
    return _with_marks(value) if has_digits(value) else value


def _with_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_marks(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_marks(each) for each in value]
    return f"{_MARK}{value!r}" if type(value) is JsonNumber else value


# Python's own JSON parser, made as strict as RFC 8259: no NaN, no infinity, UTF-8 only.
#
# In this package, `import json` imports the standard library's module: imports are absolute.


class NotJson(ValueError):
    """A body is not JSON, or is not of the wanted type. The text says why, and quotes nothing of the body."""


class OutOfRange(NotJson):
    """A number does not fit a double, or has more digits than Python converts."""


class NumberText(str):
    """A number as it is written."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def finite_float(text: str) -> float:
    """As `exact_float`. Raises `OutOfRange`."""
    value = exact_float(text)
    if math.isinf(value):
        raise OutOfRange("a number does not fit a double")
    return value


def _whole(text: str) -> int | NumberText:
    try:
        return int(text)
    except ValueError:  # Python's limit on digits
        return NumberText(text)


# Shared by all: they have no configuration, and their C scanners cannot be pickled.
DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=finite_float)
DOUBLES: Final = json.JSONDecoder(parse_constant=_refuse_constant)
"""Rounds numbers, also to infinity."""
TEXT_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=NumberText)
"""Leaves numbers that are not whole as they are written."""
LONG_TEXT_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=NumberText, parse_int=_whole)
"""And whole numbers of too many digits, so that it refuses no number; slower."""


def parsed(body: bytes, decoder: json.JSONDecoder, exact: json.JSONDecoder | None = None) -> tuple[Any, str]:
    """The value of a body, and its text. Raises `NotJson`.

    Args:
      exact: for bodies with numbers that `decoder` may round.
    """
    try:
        # Not json.loads(bytes): it guesses UTF-16 and accepts surrogates.
        text = body.decode()
        value = decoder.decode(text) if exact is None else decoded(text, decoder.decode, exact.decode)
        return value, text
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 text: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise NotJson("JSON nested too deeply") from error
    except NotJson:
        raise
    except ValueError as error:  # Python's limit on digits
        raise OutOfRange("a number has too many digits") from error


def is_deeper_than(levels: int, value: Any, text: str) -> bool:
    """Whether a parsed value has more levels of arrays and objects. Goes level by level, without recursion."""
    # Each level has a bracket, so with few brackets no walk is needed.
    if text.count("[") + text.count("{") <= levels:
        return False
    level = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for each in level:
            # The parser creates exactly these types, and comparing them is faster than isinstance.
            inner += [child for child in children(each) if type(child) is dict or type(child) is list]
        if not inner:
            return False
        level = inner
    return True


def children(value: Any) -> Iterable[Any]:
    """The values in an object or an array; none in anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
