"""Tables of log lines: columns by name, options, and what is refused; the functions."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("regex", reason="grok needs the extra 'sql'")

from rmqio.sql import types
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.formats import decoder_of
from rmqio.sql.formats.base import RowFailure
from rmqio.sql.scripts.script import Script
from rmqio.sql.types import SqlType
from tests.unit.sql.evaluating import evaluate
from tests.unit.sql.formats.support import decode, fields_of, table_with

MAP = SqlType("MAP", elements=(types.VARCHAR, types.VARCHAR))
LINE = b'10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 -'


def test_columns_of_a_grok_pattern() -> None:
    table = table_with(
        {"clientip": types.VARCHAR, "response": types.INTEGER, "bytes": types.BIGINT},
        format="grok", grok__pattern="%{COMMONAPACHELOG}",
    )  # fmt: skip
    assert decode(table, LINE) == ("10.0.0.1", 200, None)
    assert decode(table, LINE + b"\r\n", ["response"]) == (200,)


def test_patterns_of_a_table() -> None:
    options = {"format": "grok", "grok.pattern": "%{ORDER}: %{GREEDYDATA:text}", "grok.patterns.ORDER": "%{INT:id}-x"}
    given = {name.replace(".", "__"): text for name, text in options.items()}
    table = table_with({"id": types.BIGINT, "text": types.VARCHAR}, **given)
    assert decode(table, b"12-x: a") == (12, "a")


def test_columns_of_syslog() -> None:
    table = table_with(
        {"severity": types.INTEGER, "timestamp": types.TIMESTAMP_LTZ, "structured_data": MAP, "message": types.VARCHAR},
        format="syslog",
    )
    line = '<34>1 2024-01-01T00:00:00+01:00 h a - - [x@1 k="v"] text'
    assert decode(table, line.encode()) == (2, 1_704_063_600_000_000, {"x@1.k": "v"}, "text")
    assert decode(table, b"<34>1 - h a - - -") == (2, None, None, None)
    table = table_with(
        {"timestamp": types.TIMESTAMP_LTZ}, format="syslog", syslog__year="2024", syslog__time_zone="Asia/Shanghai"
    )
    assert decode(table, b"<34>Jan  1 08:00:00 h x") == (1_704_067_200_000_000,)


def test_columns_of_cef() -> None:
    table = table_with(
        {
            "severity": types.INTEGER,
            "src": types.VARCHAR,
            "spt": types.INTEGER,
            "extension": MAP,
            "other": types.DOUBLE,
        },
        format="cef",
    )
    assert decode(table, rb"CEF:0|a\||b|c|d|e|5|src=1.1.1.1 spt=80 x=\=") == (
        5, "1.1.1.1", 80, {"src": "1.1.1.1", "spt": "80", "x": "="}, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "column", "line", "expected"),
    [
        ({"format": "grok", "grok__pattern": "^%{INT:a}$"}, "a", "12", "12"),
        ({"format": "syslog"}, "hostname", "<34>1 - h a - - -", "h"),
        ({"format": "cef"}, "src", "CEF:0|a|b|c|d|e|5|src=1", "1"),
    ],
)
@pytest.mark.parametrize(("before", "after"), [("\ufeff", ""), ("", "\r\n"), ("\ufeff", "\n")])
def test_marks_and_line_breaks_are_no_part_of_a_line(
    options: dict[str, str], column: str, line: str, expected: str, before: str, after: str
) -> None:
    assert decode(table_with({column: types.VARCHAR}, **options), (before + line + after).encode()) == (expected,)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a CEF: b|c CEF:0|v|p|1|d|n|5|src=1", ("a CEF: b|c", "src=1", "1")),
        ("xCEF:1|b CEF:0|v|p|1|d|n|5|src=1", ("xCEF:1|b", "src=1", "1")),
        ("CEF:0|v|p|1|d|n|5|prefix=x extension=y src=1", (None, "prefix=x extension=y src=1", "1")),
    ],
)
def test_a_cef_event_begins_at_its_header(line: str, expected: tuple[str | None, ...]) -> None:
    table = table_with(dict.fromkeys(("prefix", "extension", "src"), types.VARCHAR), format="cef")
    assert decode(table, line.encode()) == expected
    assert evaluate("PARSE_CEF(a)['prefix']", {"a": ("STRING", line)}) == expected[0]


@pytest.mark.parametrize(
    ("body", "columns", "options", "message"),
    [
        (b"<34>1 2016-02-28T23:59:59+25:00 h a - - -", {"timestamp": types.TIMESTAMP_LTZ}, {"format": "syslog"},
         "column timestamp: '2016-02-28T23:59:59+25:00' is not a timestamp with a zone"),
        (b"<34>1 2016-12-31T23:59:60Z h a - - -", {"timestamp": types.TIMESTAMP_LTZ}, {"format": "syslog"},
         "column timestamp: '2016-12-31T23:59:60' is not a time of day"),
        (b"x", {"a": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{INT:a}"},
         "the line does not match the grok pattern: 'x'"),
        (b"\xff", {"a": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{INT:a}"}, "the body is not UTF-8"),
        (b"12", {"a": types.TINYINT.nullable(False), "b": types.VARCHAR.nullable(False)},
         {"format": "grok", "grok__pattern": "%{INT:a}|%{WORD:b}"},
         "column b: it is NOT NULL, but the line has no such field"),
        (b"1200", {"a": types.TINYINT}, {"format": "grok", "grok__pattern": "%{INT:a}"},
         "column a: 1200 is out of range"),
        (b"x" * 11, {"message": types.VARCHAR}, {"format": "syslog", "syslog__max_length": "10"},
         "the line has 11 bytes, more than the maximum of 10"),
        (b"x", {"message": types.VARCHAR}, {"format": "syslog"}, "the line is not syslog: 'x'"),
        (b"x", {"src": types.VARCHAR}, {"format": "cef"}, "the line has no CEF: header: 'x'"),
    ],
)  # fmt: skip
def test_lines_that_are_bad_rows(
    body: bytes, columns: dict[str, SqlType], options: dict[str, str], message: str
) -> None:
    table = table_with(columns, **options)
    with pytest.raises(RowFailure, match=re.escape(message)):
        decode(table, body)
    with pytest.raises(RowFailure, match=re.escape(message)):
        decoder_of(table, fields_of(table)).exact(body)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": types.VARCHAR}, {"format": "grok"}, "the format grok needs the option 'grok.pattern'"),
        ({"b": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{INT:a}"},
         "there is no field b; the grok pattern has a"),
        ({"mesage": types.VARCHAR}, {"format": "syslog"}, "there is no field mesage: did you mean 'message'?"),
        ({"a": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{IMT:a}"},
         "grok.pattern is not valid: there is no grok pattern IMT: did you mean 'INT'?"),
        ({"a": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{INT:a}", "grok__patterns__X": "("},
         "grok.patterns.X is not valid"),
        ({"a": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{INT:a}", "grok__patterns__1": "x"},
         "'1' is not the name of a grok pattern"),
        ({"a": types.VARCHAR}, {"format": "grok", "grok__pattern": "%{INT:a}", "grok__timeout": "1 h"},
         "grok.timeout is '1 h'; it must be like '250 ms'"),
        ({"a": types.VARCHAR}, {"format": "json", "grok__pattern": "%{INT:a}"},
         "the option 'grok.pattern' is of the format grok, not of json"),
        ({"message": types.VARCHAR}, {"format": "syslog", "syslog__rfc": "3146"}, "syslog.rfc is '3146': did you mean"),
        ({"message": types.VARCHAR}, {"format": "syslog", "syslog__year": "24"},
         "syslog.year is '24'; it must be like '2024'"),
        ({"message": types.VARCHAR}, {"format": "syslog", "syslog__time_zone": "Mars"},
         "syslog.time-zone is 'Mars', which is not a time zone"),
        ({"message": MAP}, {"format": "syslog"}, "only structured_data can be MAP<STRING, STRING>"),
        ({"src": types.VARCHAR}, {"format": "cef", "cef__max_length": "0"}, "cef.max-length is '0'"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(columns: dict[str, SqlType], options: dict[str, str], message: str) -> None:
    with pytest.raises(Refusal, match=re.escape(message)):
        table_with(columns, **options)


def test_log_lines_are_not_written() -> None:
    script = Script()
    script.run("CREATE TABLE logs (message STRING) WITH ('topic' = 't', 'format' = 'syslog')")
    with pytest.raises(SqlError, match="logs cannot be written: the format syslog can only be read"):
        script.run("INSERT INTO logs SELECT 'x'")


def test_functions() -> None:
    assert evaluate("GROK(a, '%{IP:ip} %{WORD:w}')['ip']", {"a": ("STRING", "1.2.3.4 x")}) == "1.2.3.4"
    assert evaluate("GROK(a, '%{IP:ip}') IS NULL", {"a": ("STRING", "x")}) is True
    assert evaluate("GROK(a, b)", {"a": ("STRING", "x1"), "b": ("STRING", "%{INT:n}")}) == {"n": "1"}
    found = evaluate("PARSE_SYSLOG(a)", {"a": ("STRING", '<34>1 - h a - - [x@1 k="v"] text')})
    assert (found["x@1.k"], found["severity_label"], found["message"]) == ("v", "crit", "text")
    assert evaluate("PARSE_CEF(a)['src']", {"a": ("STRING", "CEF:0|a|b|c|d|e|5|src=1")}) == "1"
    assert evaluate("PARSE_CEF(a)", {"a": ("STRING", "CEF")}) is None
    assert evaluate("PARSE_SYSLOG(a)", {"a": ("STRING", "CEF")}) is None


def test_a_pattern_that_is_none_is_refused_where_it_stands() -> None:
    with pytest.raises(SqlError, match="there is no grok pattern IPP"):
        evaluate("GROK(a, '%{IPP:ip}')", {"a": ("STRING", "x")})
