"""Decodes JSON bodies to a type with msgspec: several times faster, for bodies that fit.

`exact` decides what a body is. msgspec accepts some bodies that it does not: those are not usual
(`MsgspecDecoder.is_usual`). `exact` decodes or reports bodies that msgspec refuses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time
from typing import Any, Final

import msgspec

from rmqio.serde.json_numbers import may_be_rounded
from rmqio.serde.json_parser import finite_float
from rmqio.serde.typed_json.exact import MAX_DEPTH
from rmqio.serde.typed_json.plan import Anything, Plan
from rmqio.serde.typed_json.structs import Structs

_SHORT: Final = 2 * MAX_DEPTH
"""Bytes of a body that cannot be nested too deeply: each level has two brackets."""
_TOO_FINE: Final = re.compile(rb"\.[0-9]{7}")


class MsgspecDecoder:
    """Decodes usual bodies to the type of a plan, which must not contain itself."""

    __slots__ = ("_convert", "_convert_all", "_decode", "_decode_exactly", "_has_times")

    def __init__(self, plan: Plan) -> None:
        self._has_times: Final = plan.has(datetime, time)
        found = Structs(plan).of(plan.root)
        self._decode: Final = msgspec.json.Decoder(found.type).decode
        self._decode_exactly: Final = (
            msgspec.json.Decoder(found.type, float_hook=finite_float).decode if Anything() in plan.nodes() else None
        )
        self._convert: Final = found.convert
        self._convert_all: Final = found.convert_all

    def decode(self, body: bytes) -> Any:
        """Raises any exception if the body does not fit."""
        value = self._decoded(body)
        return value if self._convert is None else self._convert(value)

    def decode_all(self, bodies: Sequence[bytes]) -> list[Any]:
        """Raises any exception if one of them does not fit."""
        decode = self._decode if self._decode_exactly is None else self._decoded
        return list(self._convert_all(map(decode, bodies)))

    def _decoded(self, body: bytes) -> Any:
        """Without a call for each number of a field of any type, if a double gives back all numbers."""
        if self._decode_exactly is not None and may_be_rounded(body):
            return self._decode_exactly(body)
        return self._decode(body)

    def is_usual(self, body: bytes) -> bool:
        """Whether `decode` returns nothing else than `exact` does, if it returns."""
        return (
            (body.isascii() or _is_utf8(body))  # it does not look at what it leaves out
            and (len(body) <= _SHORT or body.count(b"[") + body.count(b"{") <= MAX_DEPTH)
            and not (self._has_times and _may_be_inexact(body))
        )

    def are_usual(self, bodies: Sequence[bytes]) -> bool:
        """The same of all."""
        whole = b"\n".join(bodies)  # a character that a body does not end does not go on in the next
        return (
            (whole.isascii() or _is_utf8(whole))
            and (max(map(len, bodies), default=0) <= _SHORT or all(map(self.is_usual, bodies)))
            and not (self._has_times and _may_be_inexact(whole))
        )


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _may_be_inexact(body: bytes) -> bool:
    """Whether it may have a time with more digits than microseconds, which is rounded, or with a NUL, which ends it."""
    return _TOO_FINE.search(body) is not None or (b"\\" in body and b"\\u00" in body)
