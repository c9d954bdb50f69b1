"""The shard of a row, by the row alone, in each process: a row that comes again goes to the same file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Set
from typing import Any

from rmqio.connect.rows import to_row
from rmqio.errors import SerdeError


def shard_of(row: Mapping[Any, Any], shards: int) -> int:
    """Returns a number below `shards`. Neither the order of fields nor that of sets counts."""
    if shards == 1:
        return 0
    try:
        text = _text(row)
    except (ValueError, RecursionError):  # it contains itself, or is too deep: no format takes it
        return 0
    return zlib.crc32(text.encode()) % shards


def _text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except TypeError:  # keys that are not text, or cannot be sorted
        return json.dumps(_plain_keys(value), sort_keys=True, default=_plain)


def _plain_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_text(key): _plain_keys(each) for key, each in value.items()}
    return [_plain_keys(each) for each in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """Returns what JSON can write. `repr` is not used where it can depend on the process: on hashes and addresses."""
    if isinstance(value, Set):
        return sorted(map(_text, value))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if hasattr(value, "tolist"):  # NumPy's
        return value.tolist()
    try:
        return to_row(value)
    except SerdeError:
        known = type(value).__module__ in ("datetime", "decimal", "uuid", "fractions", "zoneinfo", "ipaddress")
        return repr(value) if known else type(value).__qualname__
