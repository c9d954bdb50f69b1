"""URLs: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'HOST')", "facebook.com"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'PATH')", "/path1/p.php"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'QUERY')", "k1=v1&k2=v2"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'REF')", "Ref1"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'PROTOCOL')", "http"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'FILE')", "/path1/p.php?k1=v1&k2=v2"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'AUTHORITY')", "u:p@facebook.com:80"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'USERINFO')", "u:p"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'host')", None),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'QUERY', 'k2')", "v2"),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'QUERY', 'k3')", None),
    ("PARSE_URL('http://u:p@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1', 'HOST', 'k2')", None),
    ("PARSE_URL('http://a.b', 'PATH')", ""),
    ("PARSE_URL('http://a.b', 'QUERY')", None),
    ("PARSE_URL('http://a.b', 'REF')", None),
    ("PARSE_URL('http://a.b', 'FILE')", ""),
    ("PARSE_URL('http://a.b?x', 'FILE')", "?x"),
    ("PARSE_URL('http://a.b', 'USERINFO')", None),
    ("PARSE_URL('nonsense', 'HOST')", None),
    ("PARSE_URL('foo://a.b/c', 'HOST')", None),
    ("PARSE_URL('http://a.b?x=1#', 'REF')", ""),
    ("PARSE_URL('http://A.B/%20?', 'QUERY')", ""),
    ("PARSE_URL('HTTP://A.B/%20?', 'PROTOCOL')", "http"),
    ("PARSE_URL('http:/a', 'HOST')", ""),
    ("PARSE_URL('http:///a', 'HOST')", ""),
    ("PARSE_URL('http:///a', 'AUTHORITY')", ""),
    ("PARSE_URL('http://[::1]:80/a', 'HOST')", "[::1]"),
    ("URL_ENCODE('a b&c/ä*-_.~')", "a+b%26c%2F%C3%A4*-_.%7E"),
    ("URL_DECODE('a+b%26c%2F%C3%A4')", "a b&c/ä"),
    ("URL_DECODE('%zz')", None),
    ("URL_DECODE('%2')", None),
    ("URL_DECODE('%FF')", "�"),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)
