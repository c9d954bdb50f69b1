"""Until when a join keeps a row: in front of the bytes of each."""

from __future__ import annotations

import struct
from typing import Final

EXPIRY: Final = struct.Struct(">q")
"""Milliseconds since 1970, or `FOR_EVER`."""
FOR_EVER: Final = (1 << 63) - 1
