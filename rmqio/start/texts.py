"""Times and positions in queues as users write them: on command lines, in Beam YAML, in options of SQL tables."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from rmqio.errors import LocalError
from rmqio.near_names import did_you_mean
from rmqio.start.strategies import Reset, StartFrom, StopAt, to_timestamp_ms

SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION: Final = re.compile(r"(\d{1,9})([smhd])")
_LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
TIME_HELP: Final = "TIME is ISO 8601 with a time zone, Unix milliseconds, or an age: 30s, 10m, 2h"
_MOST_DIGITS: Final = 18
_A_TIME: Final = "a TIME like 10m or 2026-01-31T12:00:00Z"

StartKind = Literal["earliest", "latest", "group", "group:RESET", "timestamp:TIME"]
StopKind = Literal["none", "latest", "timestamp:TIME"]


def time_of(text: str, zone: dt.tzinfo | None = None) -> int:
    """Returns a time in Unix milliseconds; see `TIME_HELP`. Raises `LocalError`.

    `zone`: of ISO 8601 without a time zone; None: refuse it.
    """
    found = _time_of(text, zone)
    if not 0 <= found <= _LATEST_MS:
        which = "before 1970" if found < 0 else "after the year 9999"
        raise LocalError(f"time {text!r} is {which}; it is ISO 8601, Unix milliseconds, or an age like 10m")
    return found


def _time_of(text: str, zone: dt.tzinfo | None) -> int:
    if text.isascii() and text.isdigit():
        return _whole(text)
    if ago := DURATION.fullmatch(text):
        return int(time.time() * 1000) - int(ago[1]) * SECONDS[ago[2]] * 1000
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise LocalError(
            f"time {text!r} is neither ISO 8601 like 2026-01-31T12:00:00+08:00, nor Unix milliseconds, nor like 10m"
        ) from None
    try:
        return to_timestamp_ms(found.replace(tzinfo=zone) if found.tzinfo is None else found)
    except LocalError:
        raise LocalError(f"time {text!r} has no time zone; add one, e.g. Z or +08:00") from None


def _whole(text: str) -> int:
    """The number. Python converts no more than 4,300 digits, and RocketMQ's numbers have 64 bits."""
    if len(text) > _MOST_DIGITS:
        raise LocalError(f"{text[:_MOST_DIGITS]}... has {len(text)} digits, and at most {_MOST_DIGITS} are allowed")
    return int(text)


class Position(NamedTuple):
    """A position in a queue: by name, by store time, by offset, or by a group's offset."""

    kind: Literal["earliest", "latest", "none", "group", "time", "offset"]
    value: int = 0
    """Unix milliseconds, or an offset."""
    reset: Reset = "earliest"
    """The start for a group that has no offset."""


def position_of(text: str, kinds: Sequence[str], *, numbers_are_offsets: bool = False) -> Position:
    """Returns a position of one of these kinds: names as in `Position`, `group:RESET`, `timestamp:TIME`.

    A TIME needs no `timestamp:` in front. With `numbers_are_offsets`, a bare number is an offset. Raises `LocalError`.
    """
    resets: dict[str, Reset] = {"": "earliest"}
    if "group:RESET" in kinds:
        resets |= {"earliest": "earliest", "latest": "latest", "error": "error"}
    kind, _, rest = text.partition(":")
    if text in ("earliest", "latest", "none") and text in kinds:
        return Position(text)  # type: ignore[arg-type]  # the three names
    if kind == "group" and "group" in kinds and rest in resets:
        return Position("group", reset=resets[rest])
    if numbers_are_offsets and text.isascii() and text.isdigit():
        return Position("offset", _whole(text))
    if "timestamp:TIME" in kinds and kind == "timestamp" and rest:
        return Position("time", time_of(rest))
    if "timestamp:TIME" in kinds and text[:1].isdigit():
        return Position("time", time_of(text))
    said = {"group:RESET": "group:earliest, group:latest, group:error", "timestamp:TIME": _A_TIME}
    *first, last = (said.get(kind, kind) for kind in kinds)
    words = [kind for kind in kinds if kind not in said]
    raise LocalError(f"{text!r} is not {', '.join(first)} or {last}{did_you_mean(text, words)}")


def start_of(text: str, kinds: Sequence[StartKind]) -> StartFrom:
    """Returns a start of one of these kinds. `group` alone is `group:earliest`. Raises `LocalError`."""
    found = position_of(text, kinds)
    if found.kind == "group":
        return StartFrom.group_offsets(reset=found.reset)
    if found.kind == "time":
        return StartFrom.timestamp(found.value)
    return StartFrom.earliest() if found.kind == "earliest" else StartFrom.latest()


def stop_of(text: str, kinds: Sequence[StopKind]) -> StopAt | None:
    """Returns a stop of one of these kinds; for `none`, None. Raises `LocalError`."""
    found = position_of(text, kinds)
    if found.kind == "time":
        return StopAt.timestamp(found.value)
    return None if found.kind == "none" else StopAt.latest()
