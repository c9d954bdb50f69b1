"""PRINTF: Java's `String.format` of OpenJDK 17, in the locale US, gave these values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.values import ValueFailure
from tests.unit.sql.evaluating import evaluate

ROW: dict[str, tuple[str, Any]] = {
    "i": ("INT", 42), "n": ("BIGINT", -1234567), "d": ("DOUBLE", 2.5),
    "s": ("STRING", "é中"), "b": ("BOOLEAN", True), "z": ("INT", None), "t": ("TIMESTAMP(3)", 0),
}  # fmt: skip


def row() -> dict[str, tuple[str, Any]]:
    return ROW | {"m": ("DECIMAL(10, 3)", Decimal("-1.005"))}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("'Hello World %d %s', 100, 'days'", "Hello World 100 days"),
        ("'nothing'", "nothing"),
        ("'100%% %n', i", "100% \n"),
        ("'%5d|%-5d|%05d|%+d|% d', i, i, i, i, i", "   42|42   |00042|+42| 42"),
        ("'%,d|%(d|%(,012d', n, n, n", "-1,234,567|(1234567)|(01,234,567)"),
        ("'%x|%X|%#x|%o|%#o|%08x', 255, 255, 255, 8, 8, 255", "ff|FF|0xff|10|010|000000ff"),
        ("'%x', n", "ffffffffffed2979"),
        ("'%f|%.0f|%.1f|%8.2f|%-8.2f|%08.2f', d, d, d, d, d, d", "2.500000|3|2.5|    2.50|2.50    |00002.50"),
        ("'%f|%.2f|%(.1f|%,.2f', m, m, m, CAST(1234567.5 AS DECIMAL(10, 1))", "-1.005000|-1.01|(1.0)|1,234,567.50"),
        ("'%e|%.2E|%#.0e', d, m, d", "2.500000e+00|-1.01E+00|3.e+00"),
        ("'%e', CAST(0 AS DECIMAL(4, 2))", "0.000000e-02"),
        ("'%f|%5.1f|%+f', CAST('NaN' AS DOUBLE), CAST('Infinity' AS DOUBLE), CAST('Infinity' AS DOUBLE)",
         "NaN|Infinity|+Infinity"),
        ("'%s|%6s|%-6s|%.1s|%S', s, s, s, s, s", "é中|    é中|é中    |é|É中"),
        ("'%s %s %s %s', i, d, m, b", "42 2.5 -1.005 true"),
        ("'%b|%B|%b|%b|%.2b', b, b, z, s, z", "true|TRUE|false|true|fa"),
        ("'%c%C|%3c', 97, 97, 20013", "aA|  中"),
        ("'%2$s %1$s %s %<s %s', 'a', 'b'", "b a a a b"),
        ("'%d|%5d|%s|%c|%.2f', z, z, z, z, CAST(NULL AS DOUBLE)", "null| null|null|null|nu"),
        ("'%s %s', t, DATE '2024-01-31'", "1970-01-01 00:00:00.000 2024-01-31"),
        ("CAST(NULL AS STRING), i", None),
        ("'%d', NULL", "null"),
        ("s, i", "é中"),
    ],
)  # fmt: skip
def test_formats(call: str, expected: str | None) -> None:
    assert evaluate(f"PRINTF({call})", row()) == expected


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("%y", "i", "'%y' at character 1 of the format is not supported: there are %d, %x"),
        ("a %tY", "t", "'%t' at character 3 of the format is not supported"),
        ("%g", "d", "'%g' at character 1 of the format is not supported"),
        ("50%", "i", "'%' at character 3 of the format is no conversion: write %% for a percent sign"),
        ("%-d", "i", "'%-d' at character 1 of the format needs a width for its flag"),
        ("%-05d", "i", "has flags that exclude each other"),
        ("%++d", "i", "has a flag twice"),
        ("%#d", "i", "does not take the flag '#'"),
        ("%.2d", "i", "takes no precision"),
        ("%5n", "i", "takes no width"),
        ("%<s", "i", "has no argument before it"),
        ("%0$s", "i", "does not take the flag '$'"),
        ("%s %s", "i", "'%s' at character 4 of the format takes argument 2, and there is 1 argument"),
        ("%d", "", "takes argument 1, and there is none"),
        ("%d", "d", "takes an integer, not DOUBLE: use CAST, or %s"),
        ("%d", "s", "takes an integer, not STRING"),
        ("%x", "m", "takes an integer, not DECIMAL(10, 3)"),
        ("%f", "i", "takes a DECIMAL, a FLOAT or a DOUBLE, not INT: use CAST, or %s"),
        ("%c", "s", "takes the code of a character, an integer, not STRING"),
        ("%1000001d", "i", "is longer than 1000000 characters"),
        (
            "%600000d%<400001d",
            "i",
            "'%<400001d' at character 9 of the format and those before it are longer than 1000000",
        ),
    ],
)
def test_a_wrong_format_is_found_when_a_query_is_planned_and_for_a_row(text: str, arguments: str, message: str) -> None:
    if text == "%0$s":
        message = "counts arguments from 1"
    with pytest.raises(SqlError) as raised:
        evaluate(f"PRINTF('{text}'{', ' * bool(arguments)}{arguments})", row())
    assert message in str(raised.value)
    assert f"PRINTF('{text}'" in str(raised.value)
    with pytest.raises(ValueFailure) as failed:
        evaluate(f"PRINTF(f{', ' * bool(arguments)}{arguments})", row() | {"f": ("STRING", text)})
    assert message.split(", not")[0] in str(failed.value)


def test_it_needs_a_format() -> None:
    with pytest.raises(
        SqlError, match=r"PRINTF does not take \(INT, STRING\); it is PRINTF\(STRING, \[any\], \.\.\.\)"
    ):
        evaluate("PRINTF(i, s)", row())
