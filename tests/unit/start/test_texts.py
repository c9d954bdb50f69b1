"""Times as users write them, with and without a time zone."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from rmqio.errors import LocalError
from rmqio.start import time_of

NOON = 1_769_860_800_000
"""2026-01-31T12:00:00Z"""
CHINA = dt.timezone(dt.timedelta(hours=8))


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("1769860800000", None, NOON),
        ("2026-01-31T12:00:00Z", None, NOON),
        ("2026-01-31 20:00:00.000+08:00", dt.UTC, NOON),
        ("2026-01-31T20:00", CHINA, NOON),
        ("2026-01-31", dt.UTC, NOON - 12 * 3_600_000),
    ],
)
def test_a_time(text: str, zone: dt.tzinfo | None, expected: int) -> None:
    assert time_of(text, zone) == expected


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("10m", 600), ("2h", 7_200), ("1d", 86_400)])
def test_an_age(text: str, seconds: int) -> None:
    before = int(time.time() * 1000)
    assert before <= time_of(text) + seconds * 1000 <= int(time.time() * 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-01-31T12:00:00", "has no time zone; add one"),
        ("tomorrow", "neither ISO 8601"),
        ("10 m", "neither ISO 8601"),
        ("", "neither ISO 8601"),
        ("1" * 5000, "1{18}[.]{3} has 5000 digits, and at most 18 are allowed"),
    ],
)
def test_what_is_not_a_time_is_refused(text: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        time_of(text)
