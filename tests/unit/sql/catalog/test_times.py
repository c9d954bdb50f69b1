"""`startTime` takes what rocketmq-flink and RocketMQ-SQL write, and what command lines take."""

from __future__ import annotations

import pytest

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.start import StartFrom

NOON = 1_769_860_800_000
"""2026-01-31T12:00:00Z"""
TABLE = "CREATE TABLE t (a INT) WITH ('topic' = 'x', 'timeZone' = 'Asia/Shanghai', 'startTime' = '{}')"


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31 20:00:00",
        "2026-1-31 20:00",
        "2026-01-31-20-00-00",
        "20260131200000",
        "2026-01-31T20:00:00.000",
        "2026-01-31T12:00:00Z",
    ],
)
def test_a_time(text: str) -> None:
    script = Script()
    script.run(TABLE.format(text))
    assert script.catalog.tables["t"].options.start == StartFrom.timestamp(NOON)


@pytest.mark.parametrize("text", ["2026", "noon", ""])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(SqlError, match=r"it must be like 2024-01-31 23:59:59"):
        Script().run(TABLE.format(text))
