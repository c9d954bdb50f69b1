"""Python's own JSON parser, made as strict as RFC 8259: no NaN, no infinity, UTF-8 only.

In this package, `import json` imports the standard library's module: imports are absolute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from rmqio.serde.json_numbers import decoded, exact_float


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
