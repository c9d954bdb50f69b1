"""Times in formats of Java: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05.678', 'yyyy-MM-dd HH:mm:ss.SSS')", "2020-01-02 03:04:05.678"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05.678', 'yy/M/d H:m:s S SS')", "20/1/2 3:4:5 6 67"),
    (
        "DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'hh KK kk a EEE EEEE MMM MMMM DDD D E')",
        "01 01 13 PM Thu Thursday Jan January 002 2 Thu",
    ),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'u')", "2020"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'uuuu')", "2020"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'Q')", "1"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'yyy y yyyyy')", "2020 2020 02020"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'yyyy-MM-dd''T''HH ''''')", "2020-01-02T13 '"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'yyyy年MM月dd日')", "2020年01月02日"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', '')", ""),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', '[HH]')", "13"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678', 'MMMMM EEEEE')", "J T"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 13:04:05.678901', 'SSSSSS SSSSSSSSS')", "678901 678901000"),
    ("DATE_FORMAT('2020-01-02 03:04:05', 'yyyyMMdd')", "20200102"),
    ("DATE_FORMAT('2020-01-02', 'yyyyMMdd')", None),
    ("DATE_FORMAT('nope', 'yyyyMMdd')", None),
    ("DATE_FORMAT(TO_TIMESTAMP_LTZ(0, 3), 'yyyy-MM-dd HH:mm:ss')", "1970-01-01 00:00:00"),
    ("FROM_UNIXTIME(44)", "1970-01-01 00:00:44"),
    ("FROM_UNIXTIME(44, 'yyyy/MM/dd HH-mm-ss SSS')", "1970/01/01 00-00-44 000"),
    ("FROM_UNIXTIME(-1)", "1969-12-31 23:59:59"),
    ("FROM_UNIXTIME(44, 'SS')", "00"),
    ("FROM_UNIXTIME(CAST(NULL AS BIGINT))", None),
    ("FROM_UNIXTIME(0, 'yyyy-MM-dd''T''HH:mm:ss.SSSXXX')", "1970-01-01T00:00:00.000Z"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05.678', 'h:mm a')", "3:04 AM"),
    ("FROM_UNIXTIME(1577934245, 'yyyyMMdd')", "20200102"),
    ("FROM_UNIXTIME(1577934245, 'k K h H')", "3 3 3 3"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 00:04:05', 'k K h H')", "24 0 12 0"),
    ("DATE_FORMAT(TIMESTAMP '2020-12-31 23:04:05', 'D DD')", "366 366"),
    ("DATE_FORMAT(TIMESTAMP '2020-12-31 23:04:05', 'QQ')", "04"),
    ("DATE_FORMAT('2020-01-02 03:04', 'yyyy')", None),
    ("DATE_FORMAT('2020-01-02 03:04:05.123', 'ss.SSS')", "05.000"),
    ("FROM_UNIXTIME(0, '[HH]')", "[00]"),
    ("DATE_FORMAT('2024-03-31 02:30:00', '[HH z]')", "[02 UTC]"),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)


@pytest.mark.parametrize("letter", ["X", "x", "Z", "z"])
def test_a_time_without_a_zone_has_none_to_write(letter: str) -> None:
    with pytest.raises(SqlError, match=f"the letter {letter} .* cannot be written of a time without a zone"):
        evaluate(f"DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05', 'HH {letter}')")
