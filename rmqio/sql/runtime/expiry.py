"""The time to live of state: milliseconds of processing time, before what is kept."""

from __future__ import annotations

import struct
import time
from typing import Final

_LAST: Final = struct.Struct(">q")
SIZE: Final = _LAST.size


def stamp() -> bytes:
    """Returns the time of now, as bytes."""
    return _LAST.pack(now_ms())


def now_ms() -> int:
    """Returns the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def due_ms(kept: bytes, ttl_ms: int) -> int:
    """Returns when state that begins with a stamp is over its time."""
    return int(_LAST.unpack_from(kept)[0]) + ttl_ms
