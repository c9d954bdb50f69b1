"""Grok: patterns by name, fields, and what a hostile line cannot do."""

from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("regex", reason="grok needs the extra 'sql'")

from rmqio.sql.formats.logs import grok
from rmqio.sql.formats.logs.patterns import PATTERNS
from rmqio.sql.regexes.sizes import size_of
from rmqio.sql.values import ValueFailure

ACCESS = (
    '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1 HTTP/1.0" 200 2326 '
    '"http://example.com/start" "Mozilla/4.08 [en]"'
)
COMBINED = {
    "clientip": "127.0.0.1",
    "ident": "-",
    "auth": "frank",
    "timestamp": "10/Oct/2000:13:55:36 -0700",
    "verb": "GET",
    "request": "/a.gif?x=1",
    "httpversion": "1.0",
    "response": "200",
    "bytes": "2326",
    "referrer": '"http://example.com/start"',
    "agent": '"Mozilla/4.08 [en]"',
}


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("%{COMBINEDAPACHELOG}", ACCESS, COMBINED),
        ("%{COMMONAPACHELOG}", ACCESS, {key: COMBINED[key] for key in list(COMBINED)[:9]}),
        (
            "%{COMMONAPACHELOG}",
            'www.example.com - - [01/Jan/2024:00:00:00 +0000] "\\x16\\x03" 400 -',
            {"clientip": "www.example.com", "ident": "-", "auth": "-", "timestamp": "01/Jan/2024:00:00:00 +0000",
             "rawrequest": "\\x16\\x03", "response": "400"},
        ),
        (
            "%{SYSLOGLINE}",
            "Oct 11 22:14:15 host sshd[123]: Failed password",
            {"timestamp": "Oct 11 22:14:15", "logsource": "host", "program": "sshd", "pid": "123",
             "message": "Failed password"},
        ),
        (
            "%{TIMESTAMP_ISO8601:ts} %{LOGLEVEL:level} +%{GREEDYDATA:text}",
            "2024-01-31T23:59:59.123+08:00 WARN  low",
            {"ts": "2024-01-31T23:59:59.123+08:00", "level": "WARN", "text": "low"},
        ),
        ("%{NUMBER:n:int}", "took -12.5 s", {"n": "-12.5"}),
        ("(?:%{INT:x}|%{WORD:x})", "abc", {"x": "abc"}),
        ("a(?<own>[0-9]+)", "a12", {"own": "12"}),
        ("a(?P<own>[0-9]+)", "a12", {"own": "12"}),
        ("%{WORD:[http][request]} %{WORD:@x} %{WORD:a.b}", "a b c", {"http.request": "a", "@x": "b", "a.b": "c"}),
        ("%{WORD}", "abc", {}),
        (
            "%{URI:u}",
            "see https://u:p@example.com:8080/a/b?q=1#x",
            {"u": "https://u:p@example.com:8080/a/b?q=1#x", "port": "8080"},
        ),
        ("%{EMAILADDRESS:e}", "to joe.x+y@example.org.", {"e": "joe.x+y@example.org."}),
        ("%{PATH:p}", r"in C:\a\b.txt", {"p": r"C:\a\b.txt"}),
        ("^%{QS:q}$", r'"a \" b"', {"q": r'"a \" b"'}),
        ("%{UUID:id}", "x 00000000-0000-0000-0000-00000000000f", {"id": "00000000-0000-0000-0000-00000000000f"}),
        ("^%{INT:x}$", "x", None),
    ],
)  # fmt: skip
def test_fields_of_lines(pattern: str, line: str, expected: dict[str, str] | None) -> None:
    assert grok.compiled(pattern).match(line) == expected


def test_names_come_in_the_order_of_the_pattern() -> None:
    assert grok.compiled("%{WORD:b} %{WORD:a} %{WORD:b}").names == ["b", "a"]


def test_patterns_of_ones_own_can_use_all_others() -> None:
    own = {"ORDER": "%{LETTER}-%{INT:number}", "LETTER": "[A-Z]", "INT": "[0-9]{3}"}
    assert grok.compiled("%{ORDER:order}", own).match("A-1234") == {"order": "A-123", "number": "123"}


@pytest.mark.parametrize(
    ("pattern", "own", "message"),
    [
        ("%{WRD:x}", {}, "there is no grok pattern WRD: did you mean 'WORD'?"),
        ("%{WORD:x:integer}", {}, "%{WORD:x:integer}: integer is not a type: did you mean 'int'?"),
        (
            "%{WORD:x} %{WORD:y",
            {},
            "'%{WORD:x} %{WORD:y' has a %{ without its }; a part of a grok pattern is %{IP:client}",
        ),
        ("%{}", {}, "%{} is not a part of a grok pattern; one is %{IP:client}"),
        ("%{A}", {"A": "x%{B}", "B": "%{A}"}, "the grok pattern A contains itself"),
        (
            "%{WORD:a}{1000000}",
            {},
            "'%{WORD:a}{1000000}' is too large: with its patterns, and its repeats such as {1000}",
        ),
        ("(?:(?:(?:x{1000}){1000}){1000}){99999999999999999999}", {}, "is too large"),
        ("|".join(map(str, range(20_000))), {}, "is too large"),
        ("(", {}, "'(' is not a grok pattern: missing ) at position 1"),
        ("%{A9}", {f"A{n}": "%{IP}" if n == 0 else f"%{{A{n - 1}}}" * 9 for n in range(10)}, "more than 2000 parts"),
    ],
)
def test_patterns_that_are_none(pattern: str, own: dict[str, str], message: str) -> None:
    with pytest.raises(grok.WrongPattern, match=re.escape(message)):
        grok.compiled(pattern, own)


@pytest.mark.parametrize("name", PATTERNS)
def test_each_pattern_gives_a_hostile_line_up(name: str) -> None:
    """It needs few steps for each character. With so many for each pair of them, a line would take many minutes."""
    pattern = grok.compiled(f"^%{{{name}}}\x00$", timeout_s=20.0)  # in place of the many minutes
    for part in ("a", "1", ".", ":", "1.", "a.", "a-", "/a", "\\a", '"', "\\", "%", "12:", "Mar ", "x@", "%00", " "):
        assert pattern.match(part * 200_000 + "!") is None


@pytest.mark.parametrize(
    ("expression", "size"),
    [
        ("abc", 3),
        ("a{3}b", 4),
        ("(ab){3}", 9),  # a group counts as one more
        ("((a{10}){10}){2,}", 222),
        ("a{2,900}b{0,900}", 3),  # only the least number is written out
        (r"\{30\}[{30}]", 12),
        ("[]a(]{2}", 10),
        ("(?:x){99999999999999999999}", 1 << 40),
        ("{5}(((", 0),
    ],
)
def test_sizes_of_expressions(expression: str, size: int) -> None:
    assert size_of(expression) == size


def test_a_pattern_that_needs_too_long_fails() -> None:
    pattern = grok.compiled("^(?:%{DATA:a} )*(?:%{DATA:b} )*(?:%{DATA:c} )*x$", timeout_s=0.05)
    with pytest.raises(ValueFailure, match=r"not matched within 0\.05 s: it begins"):
        pattern.match("a " * 3000 + "xy")


@given(st.ip_addresses())
def test_addresses(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    found = grok.compiled("^%{IP:ip} %{IPORHOST:host}$").match(f"{address} {address}")
    assert found == {"ip": str(address), "host": str(address)}


@given(st.text(st.sampled_from("0123456789abcdef:.%"), max_size=30))
def test_what_is_an_address_is_one_for_python(text: str) -> None:
    if grok.compiled("^%{IPV6}$").match(text) is not None:
        ipaddress.IPv6Address(text)
    if grok.compiled("^%{IPV4}$").match(text) is not None:
        ipaddress.IPv4Address(text)


@given(st.datetimes())
def test_times(moment: object) -> None:
    assert grok.compiled("^%{TIMESTAMP_ISO8601:ts}$").match(str(moment)) == {"ts": str(moment)}


@given(st.text(max_size=200))
def test_any_line_matches_or_not(line: str) -> None:
    found = grok.compiled("%{COMBINEDAPACHELOG}").match(line)
    assert found is None or set(found) <= {*COMBINED, "rawrequest"}
