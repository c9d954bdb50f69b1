"""Ids of rows, for the planner: no statement can name it."""

from __future__ import annotations

import hashlib
from typing import Any

from rmqio.sql import types
from rmqio.sql.functions.registry import define
from rmqio.sql.rows import key_bytes, pack_group


def row_id(*parts: Any) -> str:
    """Returns 32 upper-case hexadecimal digits, like RocketMQ's ids, that depend on the values only."""
    try:
        data = key_bytes(parts)
    except (OverflowError, TypeError):  # an integer of more than 64 bits
        data = pack_group((), [parts])
    return hashlib.blake2b(data, digest_size=16).hexdigest().upper()


define("ROW ID", "any ...", row_id, is_strict=False, returns=lambda given: types.VARCHAR.nullable(False))
