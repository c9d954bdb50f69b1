"""Encodings and hashes: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("TO_BASE64('hello world')", "aGVsbG8gd29ybGQ="),
    ("FROM_BASE64('aGVsbG8gd29ybGQ=')", "hello world"),
    ("FROM_BASE64('aGVsbG8gd29ybGQ')", "hello world"),
    ("MD5('x')", "9dd4e461268c8034f5c8564e155c67a6"),
    ("SHA1('x')", "11f6ad8ec52a2984abaafd7c3b516503785c2072"),
    ("SHA224('x')", "54a2f7f92a5f975d8096af77a126edda7da60c5aa872ef1b871701ae"),
    ("SHA256('x')", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
    ("SHA384('x')", "d752c2c51fba0e29aa190570a9d4253e44077a058d3297fa3a5630d5bd012622f97c28acaed313b5c83bb990caa7da85"),
    (
        "SHA512('x')",
        "a4abd4448c49562d828115d13a1fccea927f52b4d5459297f8b43e42da89238bc13626e43dcb38ddb082488927ec904fb42057443983e88585179d50551afe62",
    ),
    ("SHA2('x', 256)", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
    (
        "SHA2('x', 512)",
        "a4abd4448c49562d828115d13a1fccea927f52b4d5459297f8b43e42da89238bc13626e43dcb38ddb082488927ec904fb42057443983e88585179d50551afe62",
    ),
    ("UNHEX('466C696E6B')", b"Flink"),
    ("UNHEX('F')", b"\x00"),
    ("UNHEX('zz')", None),
    ("UNHEX('')", b""),
    ("DECODE(X'616263', 'UTF-8')", "abc"),
    ("DECODE(X'ff', 'UTF-8')", "�"),
    ("ENCODE('ä', 'US-ASCII')", b"?"),
    ("HASH_CODE('abc')", 96354),
    ("HEX(255)", "FF"),
    ("HEX('hello,world')", "68656C6C6F2C776F726C64"),
    ("HEX(-1)", "FFFFFFFFFFFFFFFF"),
    ("HEX('中')", "E4B8AD"),
    ("UNHEX('4D4')", b"\x00\xd4"),
    ("HEX(CAST(NULL AS INT))", None),
    ("HEX(CAST(-1 AS INT))", "FFFFFFFFFFFFFFFF"),
    ("CAST(FROM_BASE64('/wA=') AS BYTES)", b"\xff\0"),
    ("CAST(FROM_BASE64('/wA=') AS VARBINARY(1))", b"\xff"),
    ("FROM_BASE64(X'5957493D')", "ab"),
    ("MD5(X'6162')", "187ef4436122d1cc2f40dc2b92f0eba0"),
    ("SHA2(X'6162', 256)", "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)
