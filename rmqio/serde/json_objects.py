"""Bodies that are events: objects of JSON. One decoder for rules and for look-ups, so that both take the same bodies.

It is msgspec's where that is installed. The other one takes the same bodies, and is slower. Numbers that do not fit a
double, or have too many digits for Python, are infinite: whether a body is an event does not depend on them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from rmqio.errors import SerdeError
from rmqio.serde.strict_json import NotJson, decoded, exact_float, may_be_rounded, parsed

try:
    import msgspec
except ImportError:  # the extras of dimension tables do not have it
    msgspec = None  # type: ignore[assignment,unused-ignore]

_NAMES: Final = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}


def _whole_number(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more than 4,300 digits
        return float(digits)


def _refuse_constant(name: str) -> None:
    raise NotJson(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_whole_number, parse_constant=_refuse_constant)
_EXACT_DECODER: Final = json.JSONDecoder(
    parse_int=_whole_number, parse_constant=_refuse_constant, parse_float=exact_float
)
_QUICK_EXACT: Final = None if msgspec is None else msgspec.json.Decoder(float_hook=exact_float)


def object_of(body: bytes | bytearray, *, exact: bool = False) -> dict[str, Any]:
    """Returns the object that a body is. Raises `SerdeError`, whose text quotes nothing of the body.

    Args:
      exact: a number that no float holds is a `JsonNumber`, which keeps its digits where the value goes on.
    """
    try:
        value = _strictly(body, exact) if msgspec is None else _quickly(body, exact)
    except RecursionError as error:
        raise SerdeError("the body is nested too deep") from error
    except (NotJson, UnicodeDecodeError) as error:  # msgspec's error of a byte depends on its version
        if reason := _not_utf8(body):
            raise SerdeError(reason) from error
        if isinstance(error.__cause__, RecursionError):
            raise SerdeError("the body is nested too deep") from error
        raise SerdeError(f"the body is not JSON: {str(error).removeprefix('not JSON: ')}") from error
    if value.__class__ is not dict:
        name = "null" if value is None else _NAMES.get(type(value), "text")
        raise SerdeError(f"the body is JSON, but not an object: {name}")
    found: dict[str, Any] = value
    return found


def _quickly(body: bytes | bytearray, exact: bool) -> Any:
    try:
        if exact and may_be_rounded(body):
            return decoded(body, msgspec.json.decode, _QUICK_EXACT.decode)
        return msgspec.json.decode(body)
    except msgspec.ValidationError:  # a number beyond a double, or with too many digits: all else is a DecodeError
        return _strictly(body, exact)
    except msgspec.MsgspecError as error:
        if b"\\u" in body:  # half of a surrogate pair is a body that was cut off to msgspec
            _strictly(body, exact)
        raise NotJson(str(error)) from error


def _strictly(body: bytes | bytearray, exact: bool) -> Any:
    value, text = parsed(bytes(body), _DECODER, _EXACT_DECODER if exact else None)
    if "\\u" in text:  # half of a surrogate pair can only be there as an escape
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise NotJson("half of a surrogate pair") from error
    return value


def _not_utf8(body: bytes | bytearray) -> str | None:
    """The reason, with the first byte that is wrong: msgspec counts from the start of the text in quotes."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8: byte {error.start}"
    return None
