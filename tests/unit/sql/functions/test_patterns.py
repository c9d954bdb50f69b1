"""LIKE, SIMILAR TO and regular expressions: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.values import ValueFailure
from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("REGEXP_COUNT('aXbX', 'X')", 2),
    ("REGEXP_COUNT('abc', '')", 4),
    ("REGEXP_EXTRACT_ALL('100-200, 300-400', '(\\d+)-(\\d+)')", ["100", "300"]),
    ("REGEXP_EXTRACT_ALL('100-200, 300-400', '(\\d+)-(\\d+)', 0)", ["100-200", "300-400"]),
    ("REGEXP_EXTRACT_ALL('100-200, 300-400', '(\\d+)-(\\d+)', 3)", None),
    ("REGEXP_EXTRACT_ALL('100-200, 300-400', '\\d+')", None),
    ("REGEXP_EXTRACT_ALL('abc', '(x)?b')", [None]),
    ("REGEXP_EXTRACT_ALL('abc', '(z)')", []),
    ("REGEXP_INSTR('abcb', 'b')", 2),
    ("REGEXP_INSTR('abcb', 'z')", 0),
    ("REGEXP_SUBSTR('abcb', 'b.')", "bc"),
    ("REGEXP_SUBSTR('abcb', 'z')", None),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 3)", None),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)')", "foothebar"),
    ("REGEXP_REPLACE('abc', '(b)', '[$1]')", "a[$1]c"),
    ("REGEXP_REPLACE('a.b\\c', '\\.', '\\\\')", "a\\\\b\\c"),
    ("REGEXP('abc', '')", False),
    ("REGEXP('abc', 'b')", True),
    ("STR_TO_MAP('a=1,b=2,c')", {"a": "1", "b": "2", "c": None}),
    ("STR_TO_MAP('a:1;b:2', ';', ':')", {"a": "1", "b": "2"}),
    ("STR_TO_MAP('')", {}),
    ("STR_TO_MAP('a.1|b.2', '\\|', '\\.')", {"a": "1", "b": "2"}),
    (r"'a_b' LIKE 'a\_b'", False),
    (r"'TE_ST' LIKE 'TE\_ST'", False),
    (r"'TE_ST' LIKE 'TE\_ST' ESCAPE '\'", True),
    (r"'TE\_ST' LIKE 'TE\\\_ST' ESCAPE '\'", True),
    (r"'TE\xST' LIKE 'TE\_ST'", True),
    (r"'C:\Temp\x.exe' LIKE 'C:\Temp\%'", True),
    (r"'C:\Temp\x.exe' LIKE 'C:\Temp\_.exe'", True),
    (r"'C:\Temp' LIKE 'C:\%p'", True),
    (r"'C:\Temp\x.exe' LIKE '%\Temp\%'", True),
    (r"'C:\Temp\x.exe' LIKE '%\x.exe'", True),
    (r"'C:%' LIKE 'C:\%'", False),
    ("'a%b' LIKE 'a!%b' ESCAPE '!'", True),
    ("'abc' LIKE 'a_c'", True),
    ("'abc' LIKE 'A%'", False),
    ("'aéc' LIKE 'a_c'", True),
    ("'abc' SIMILAR TO '(a|b)%'", True),
    ("'a.c' SIMILAR TO 'a.c'", True),
    ("'abc' SIMILAR TO 'a.c'", True),
    ("'abc' SIMILAR TO '[a-c]+'", True),
    ("'a\\b' LIKE 'a\\b'", True),
    ("'a\\b' LIKE 'a\\\\b'", False),
    ("'a\\' LIKE 'a\\'", True),
    ("'a\\\\b' LIKE 'a\\\\b'", True),
    ("'a_b' LIKE 'a!_b' ESCAPE '!'", True),
    ("'axb' LIKE 'a!_b' ESCAPE '!'", False),
    ("'axb' LIKE 'a\\_b'", False),
    ("REGEXP_REPLACE('aXbX', 'X', '\\$')", "a\\$b\\$"),
    ("REGEXP_EXTRACT('a1', '(?i)A')", "a"),
    ("REGEXP_EXTRACT('ÄÖ', '(?i)äö')", None),
    ("REGEXP_EXTRACT('é', '\\w')", None),
    ("REGEXP_COUNT('aXb', '[^a]')", 2),
    ("REGEXP_COUNT('a]b', '[]]')", 1),
    ("STR_TO_MAP('a=1;b=2', ';', '=')", {"a": "1", "b": "2"}),
    ("STR_TO_MAP('a==1', ',', '=')", {"a": "=1"}),
    ("STR_TO_MAP('abc', '', '=')", {"a": None, "b": None, "c": None}),
    ("'US$' SIMILAR TO 'US$'", True),
    ("'US' SIMILAR TO 'US$'", False),
    (r"'a5' SIMILAR TO 'a\d'", False),
    (r"'a\d' SIMILAR TO 'a\d'", True),
    ("'5' SIMILAR TO '[[:DIGIT:]]'", True),
    ("'x' SIMILAR TO '[^[:digit:]]'", True),
    ("'a%' SIMILAR TO 'a!%' ESCAPE '!'", True),
    ("'ab' SIMILAR TO 'a!%' ESCAPE '!'", False),
    (r"REGEXP('ä', '^\p{L}$')", True),
    (r"REGEXP('5', '\p{L}')", False),
    (r"REGEXP('ä', '\p{Lu}')", False),
    (r"REGEXP('Ä', '\p{IsLu}')", True),
    (r"REGEXP_REPLACE('aä-5', '[^\p{L}\p{Nd}]', '')", "aä5"),
    (r"REGEXP_REPLACE('aä5', '\PL', '')", "aä"),
    (r"REGEXP_EXTRACT('x €5', '\p{Sc}\d')", "€5"),
    ("STR_TO_MAP('Straße', 'x', '')", {"S": "traße"}),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)


@pytest.mark.parametrize(
    "expression",
    [
        "REGEXP(a, '(a|aa)+$')",
        "a RLIKE '(a|aa)+$'",
        "REGEXP_EXTRACT(a, '(a|aa)+$')",
        "REGEXP_EXTRACT_ALL(a, '(a|aa)+$')",
        "REGEXP_REPLACE(a, '(a|aa)+$', 'x')",
        "REGEXP_COUNT(a, '(a|aa)+$')",
        "REGEXP_INSTR(a, '(a|aa)+$')",
        "REGEXP_SUBSTR(a, '(a|aa)+$')",
        "STR_TO_MAP(a, '(a|aa)+$')",
        "STR_TO_MAP(a, ',', '(a|aa)+$')",
        "REGEXP(a, p)",
        "REGEXP_REPLACE(a, p, 'x')",
    ],
)
def test_a_text_that_takes_too_long_makes_its_row_bad(expression: str) -> None:
    pytest.importorskip("regex", reason="a time limit needs the extra 'sql'")
    row = {"a": ("STRING", "a" * 100 + "b"), "p": ("STRING", "(a|aa)+$")}
    expected = r"(RLIKE|REGEXP|STR_TO_MAP).*: the regular expression '\(a\|aa\)\+\$' took longer than 0.25 s for 'aaa"
    with pytest.raises(ValueFailure, match=expected):
        evaluate(expression, row)


def test_a_slow_pattern_of_similar_to_makes_its_row_bad() -> None:
    pytest.importorskip("regex", reason="a time limit needs the extra 'sql'")
    with pytest.raises(ValueFailure, match=r"the pattern of SIMILAR TO '.*' took longer than 0.25 s"):
        evaluate("a SIMILAR TO '(a|aa)+'", {"a": ("STRING", "a" * 100 + "b")})
