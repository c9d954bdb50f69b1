"""Grok: patterns by name, fields, and what a hostile line cannot do."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("regex", reason="grok needs the extra 'sql'")

from rmqio.sql.functions import grok
from rmqio.sql.functions.grok import PATTERNS
from rmqio.sql.regexes import size_of
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
        ("^%{IP:ip}:%{NUMBER:port}$", "2001:db8::1:443", {"ip": "2001:db8::1", "port": "443"}),
        ("%{HOSTPORT:h}", "to 2001:db8::1:443", {"h": "2001:db8::1:443"}),
        (
            "%{HTTPD_ERRORLOG}",
            "[Mon Aug 31 09:30:48 2015] [proxy:error] [pid 7:tid 8] (70008)Partial results: [client 2001:db8::1:443] "
            "AH01075: Error 'a\n'",
            {"timestamp": "Mon Aug 31 09:30:48 2015", "module": "proxy", "loglevel": "error", "pid": "7", "tid": "8",
             "proxy_errorcode": "70008", "proxy_message": "Partial results", "clientip": "2001:db8::1",
             "clientport": "443", "errorcode": "AH01075", "message": "Error 'a\n'"},
        ),
        ("%{GREEDYDATA:m} at$", "a\nb at\nc", {"m": "a\nb"}),
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
    assert pattern.match("C:" + "\\a" * 200_000 + "!") is None


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
def test_what_is_an_address_of_ipv6_is_one_for_python(text: str) -> None:
    if grok.compiled("^%{IPV6}$").match(text) is not None:
        ipaddress.IPv6Address(text.partition("%")[0])


@given(st.datetimes())
def test_times(moment: object) -> None:
    assert grok.compiled("^%{TIMESTAMP_ISO8601:ts}$").match(str(moment)) == {"ts": str(moment)}


@given(st.text(max_size=200))
def test_any_line_matches_or_not(line: str) -> None:
    found = grok.compiled("%{COMBINEDAPACHELOG}").match(line)
    assert found is None or set(found) <= {*COMBINED, "rawrequest"}


LOGSTASH: Final = {
    # Python has another name for a class within a class.
    name: pattern.replace("[[[:alnum:]]_%", "[[:alnum:]_%")
    for name, _, pattern in (
        line.partition(" ")
        for line in (Path(__file__).parent / "logstash.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
OTHER: Final = {"EMAILLOCALPART": PATTERNS["EMAILLOCALPART"], "URIQUERY": PATTERNS["URIQUERY"]}
"""As the newer ones of Logstash."""
LINES: Final = [
    "2001:db8::1:443", "::1:80", "[2001:db8::1]:443", "::ffff:10.0.0.1:443", "1:2:3:4:5:6:7:8:9", "fe80::1%eth0.1:443",
    "10.0.0.1:8080", "010.001.0.1", "00:1b:44:11:3a:b7", "::", "x::y", "192.300.1.1", "example.com.:80", "a-b.c:0x1f",
    "[Mon Aug 31 09:30:48.95 2015] [a:error] [pid 7:tid 8] (70008)Partial: [client 2001:db8::1:52042] AH01075: no",
    "[Mon Aug 31 09:30:48 2015] [core:warn] [pid 7] [client 10.0.0.1:5] x: y",
    "[Mon Aug 31 09:30:48 2015] [:error] [pid 7] x", "[Mon Aug 31 16:27:04 2015] [error] [client 10.1.1.1] Premature",
    "Mar 16 00:01:25 evita postfix/smtpd[1713]: connect from x[168.100.1.3]", "Mar 16 00:01:25 ::1 cron: x\ny",
    "2024-01-02T00:00:00.5+02:00 host <3.4> no program", "Mon, 02 Jan 2006 15:04:05 +0000", "112:34:56",
    "Mon Jan 02 15:04:05 UTC 2006", "20060102150405", "04/Mai/2015:13:17:15 +0200", "31.12.99-24:00:00",
    "  at a.b.C$1.<init>(Native Method)", "at a.b.C.d(E.java:12)", "a..b@c.d", "1a+b@example.com", "h://x",
    "ab://u:p@[::1]:80/x?y=1", "März Okt", "https://[::1]/a|b", "Warni INF ERRO crit", '"a\\"b" \\"x"', "''`a`",
    "/a/b:1:2", "C:\\a b\\c:1", "/dev/pts/1", "urn:a:%zz",
    ACCESS, ACCESS.replace("127.0.0.1", "2001:db8::1"), "-.5 +1.5e 0x1F", "00000000-0000-0000-0000-00000000000f",
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(PATTERNS.keys() & LOGSTASH.keys() - {"EMAILLOCALPART"}))
def test_a_pattern_gives_what_that_of_logstash_gives(name: str) -> None:
    for form in (f"%{{{name}:x}}", f"^%{{{name}:x}}(?::%{{NUMBER:y}})?$"):
        ours, theirs = grok.compiled(form), grok.compiled(form, {**LOGSTASH, **OTHER})
        for line in LINES:
            assert ours.match(line) == theirs.match(line), (form, line)
