"""The jobs that all sides do: what they read, and what must come out."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pipelines.province import PROVINCES

_BEGIN_MS: Final = 1_700_000_000_000
_WINDOW_MS: Final = 10_000
_KEYS: Final = 100
PATTERNS: Final = tuple(rf"unit {number}7\d+ failed with [A-Z]+" for number in range(1, 42))
"""41, without quotation marks, which an expression of RocketMQ Streams could not have."""
JOINED: Final = re.compile("|".join(PATTERNS))

Row = tuple[str, Any]


class Work(NamedTuple):
    """A job."""

    topic: str
    bodies: Sequence[bytes]
    wanted: Mapping[str, Any]
    """The things that must come out: their values by name."""
    read: Callable[[dict[str, Any]], Row | None]
    """The name and the value of a message of the sink; None: it does not count."""


def provinces(count: int) -> Work:
    """The province of each address."""
    wanted = {str(number): PROVINCES[number % len(PROVINCES)] for number in range(count)}
    rows = [{"id": name, "address": f"{province} Long Street {name}"} for name, province in wanted.items()]
    return Work("addresses", [*map(_encoded, rows)], wanted, lambda found: (str(found["id"]), found["province"]))


def patterns(count: int) -> Work:
    """The lines that one of 41 patterns matches: 1 of 100."""
    hits = {number: f"unit {number // 100 % 41 + 1}7{number} failed with ERROR" for number in range(0, count, 100)}
    texts = [hits.get(number, f"unit {number} has answered in {number % 97} ms") for number in range(count)]
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    wanted = {str(number): text for number, text in enumerate(texts) if JOINED.search(text)}
    return Work("lines", [*map(_encoded, rows)], wanted, lambda found: (str(found["id"]), found["text"]))


def sums(count: int) -> Work:
    """Sums and counts of each key in windows of 10 s, which are closed by orders of an hour later in all queues."""
    wanted: dict[str, list[int]] = {}
    rows = []
    for number in range(count):
        key, time_ms = f"k{number % _KEYS}", _BEGIN_MS + number * 5
        rows.append({"key": key, "amount": number % 1000, "time_ms": time_ms})
        window = wanted.setdefault(f"{key} {time_ms // _WINDOW_MS * _WINDOW_MS}", [0, 0])
        window[0] += 1
        window[1] += number % 1000
    later = [{"key": "end", "amount": 0, "time_ms": _BEGIN_MS + 3_600_000 + count * 5} for _ in range(2_000)]
    return Work("orders", [*map(_encoded, [*rows, *later])], wanted, _total)


def _total(found: dict[str, Any]) -> Row | None:
    if found["key"] == "end":
        return None
    start = found.get("start_ms")
    if start is None:  # of RocketMQ Streams: local time as text
        start = int(dt.datetime.strptime(found["start_time"], "%Y-%m-%d %H:%M:%S").timestamp() * 1000)
    return f"{found['key']} {start}", [int(found["count"]), int(float(found["sum"]))]


def _encoded(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


WORKS: Final[dict[str, Callable[[int], Work]]] = {"province": provinces, "sums": sums, "patterns": patterns}
