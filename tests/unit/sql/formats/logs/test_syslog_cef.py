"""Lines of syslog and CEF: both forms, escapes, hostile lines."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import zoneinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.sql.functions import syslog
from rmqio.sql.values import ValueFailure

PRIORITY = {"priority": "34", "facility": "4", "facility_label": "auth", "severity": "2", "severity_label": "crit"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (  # the examples of RFC 5424
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed",
            {**PRIORITY, "version": "1", "timestamp": "2003-10-11T22:14:15.003Z", "hostname": "mymachine.example.com",
             "app_name": "su", "msg_id": "ID47", "message": "'su root' failed"},
        ),
        (
            '<34>1 - - - - - [a@1 iut="3" x="\\"\\\\\\]"][b@2] m',
            {**PRIORITY, "version": "1", "structured_data": '[a@1 iut="3" x="\\"\\\\\\]"][b@2]', "message": "m"},
        ),
        ("<34>1 - h a - - -", {**PRIORITY, "version": "1", "hostname": "h", "app_name": "a"}),
        ("<34>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %%\n",
         {**PRIORITY, "version": "1", "timestamp": "2003-08-24T05:14:15.000003-07:00", "hostname": "192.0.2.1",
          "app_name": "myproc", "proc_id": "8710", "message": "%%"}),
        # and of RFC 3164
        ("<34>Oct 11 22:14:15 mymachine su: 'su root' failed",
         {**PRIORITY, "timestamp": "2024-10-11T22:14:15Z", "hostname": "mymachine", "app_name": "su",
          "message": "'su root' failed"}),
        ("Oct  1 22:14:15.25 web1 sshd[123]: Failed: password",
         {"timestamp": "2024-10-01T22:14:15.25Z", "hostname": "web1", "app_name": "sshd", "proc_id": "123",
          "message": "Failed: password"}),
        ("<34>Oct 11 2003 22:14:15 h no tag here",
         {**PRIORITY, "timestamp": "2003-10-11T22:14:15Z", "hostname": "h", "message": "no tag here"}),
        ("<34>Oct 11 22:14:15 su: no host",
         {**PRIORITY, "timestamp": "2024-10-11T22:14:15Z", "app_name": "su", "message": "no host"}),
        # with the year, or a zone, after the time
        *((f"<34>Oct 11 22:14:15{after} h su: x",
           {**PRIORITY, "timestamp": f"{stamp}Z", "hostname": "h", "app_name": "su", "message": "x"})
          for after, stamp in (
              (" 2020", "2020-10-11T22:14:15"), (" UTC", "2024-10-11T22:14:15"), ("Z", "2024-10-11T22:14:15"),
              (" +0200", "2024-10-11T20:14:15"), ("-03:30 2020", "2020-10-12T01:44:15"),
              (" 2020 GMT", "2020-10-11T22:14:15"))),
        ("<34>Oct 11 22:14:15 2020",
         {**PRIORITY, "timestamp": "2024-10-11T22:14:15Z", "hostname": "2020", "message": ""}),
        ("2024-01-31T23:59:59+08:00 h cron[1]: x",
         {"timestamp": "2024-01-31T23:59:59+08:00", "hostname": "h", "app_name": "cron", "proc_id": "1",
          "message": "x"}),
        ("Feb 29 00:00:00 h", {"timestamp": "2024-02-29T00:00:00Z", "hostname": "h", "message": ""}),
    ],
)  # fmt: skip
def test_syslog_is_read(line: str, expected: dict[str, str]) -> None:
    assert syslog.parse_syslog(line, year=2024) == expected


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("", {}, "the line is not syslog: ''"),
        ("hello", {}, "the line is not syslog: 'hello'"),
        ("<192>Oct 11 22:14:15 h x", {}, "<192> is not a priority of syslog: the largest is 191"),
        ("<34>Oct 11 22:14:15 h x", {"rfc": "5424"}, "the line is not syslog of RFC 5424"),
        ("<34>1 - h a - - [x", {}, "the structured data of syslog does not end with ]"),
        ('<34>1 - h a - - [x a="b]', {}, "the structured data of syslog does not end with ]"),
        ("<34>1 - h a - - nothing", {}, "the structured data of syslog is neither '-' nor [id name=\"value\"]"),
        ("<34>1 - h a - - [x]y", {}, "structured data of syslog is followed by 'y'"),
        ("<34>Oct 11 22:14:15 +2500 h x", {}, "'Oct 11 22:14:15 +2500' is not a time"),
        ("<34>Oct 11 22:14:60 h x", {}, "'Oct 11 22:14:60' is not a time"),
        ("<34>Oct 32 22:14:15 h x", {}, "'Oct 32 22:14:15' is not a time"),
        ("Feb 29 00:00:00 h x", {"year": 2023}, "'Feb 29 00:00:00' is not a time"),
    ],
)
def test_lines_that_are_no_syslog(line: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueFailure, match=re.escape(message)):
        syslog.parse_syslog(line, **options)


def test_times_without_a_year_are_near_the_present_and_have_a_zone() -> None:
    now = dt.datetime.now(dt.UTC)
    for days in (-170, -1, 0, 1, 170):
        moment = (now + dt.timedelta(days=days)).replace(microsecond=0)
        line = f"{syslog._MONTHS[moment.month - 1]} {moment.day:2} {moment:%H:%M:%S} h x"
        assert syslog.parse_syslog(line)["timestamp"] == moment.replace(tzinfo=None).isoformat() + "Z"
    zone = zoneinfo.ZoneInfo("Asia/Shanghai")
    assert syslog.parse_syslog("Jan  1 00:00:00 h x", year=2024, zone=zone)["timestamp"] == "2023-12-31T16:00:00Z"


def test_structured_data_as_a_map() -> None:
    text = '[a@1 x="1" y="\\"\\\\\\]z"][b@2]'
    assert syslog.structured(text) == {"a@1.x": "1", "a@1.y": '"\\]z', "b@2": ""}


NAMES = st.text(st.characters(codec="ascii", exclude_characters=' ="]', min_codepoint=33), min_size=1, max_size=8)
VALUES = st.text(st.characters(codec="utf-8"), max_size=12)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=3), min_size=1, max_size=3), VALUES)
def test_structured_data_goes_round(elements: dict[str, dict[str, str]], message: str) -> None:
    def escaped(text: str) -> str:
        return re.sub(r'(["\\\]])', r"\\\1", text)

    data = ""
    for name, of in elements.items():
        data += f"[{name}" + "".join(f' {key}="{escaped(value)}"' for key, value in of.items()) + "]"
    message = message.rstrip("\r\n").removeprefix("\ufeff")
    found = syslog.parse_syslog(f"<34>1 - h a - - {data} {message}")
    assert found.get("message") == message
    assert syslog.structured(found["structured_data"]) == {
        f"{name}.{key}": value for name, of in elements.items() for key, value in of.items()
    }


@pytest.mark.parametrize(
    ("line", "header", "extension"),
    [
        (
            "CEF:0|Security|threatmanager|1.0|100|worm successfully stopped|10|src=10.0.0.1 dst=2.1.2.2 spt=1232",
            ["0", "Security", "threatmanager", "1.0", "100", "worm successfully stopped", "10"],
            {"src": "10.0.0.1", "dst": "2.1.2.2", "spt": "1232"},
        ),
        (
            r"CEF:1|a\|b|c\\|d|e|f=g|High|act=blocked a | and \= act2 msg=one\ntwo  three x=",
            ["1", "a|b", "c\\", "d", "e", "f=g", "High"],
            {"act": "blocked a | and = act2", "msg": "one\ntwo  three", "x": ""},
        ),
        ("CEF:0|a|b|c|d|e|5", ["0", "a", "b", "c", "d", "e", "5"], {}),
        ("CEF: 0|||||||", ["0", "", "", "", "", "", ""], {}),
        ("CEF:0|a|b|c|d|e|5|a=1 a=2 cs1Label=x y cs1=z\r\n", ["0", "a", "b", "c", "d", "e", "5"],
         {"a": "2", "cs1Label": "x y", "cs1": "z"}),
    ],
)  # fmt: skip
def test_cef_is_read(line: str, header: list[str], extension: dict[str, str]) -> None:
    assert syslog.parse_cef(line) == (dict(zip(syslog.HEADER, header, strict=True)), extension)
    prefixed, _ = syslog.parse_cef(f"Sep 19 08:26:10 host {line}")
    assert prefixed["prefix"] == "Sep 19 08:26:10 host"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the line has no CEF: header: ''"),
        ("xCEF:0|a|b|c|d|e|5|", "the line has no CEF: header"),
        ("CEF:0|a|b|c", "the CEF header has no device_version: it needs seven fields, each followed by |: 'c'"),
        ("CEF:0|a|b|c|d|e|5|words", "the CEF extension has no key=value: 'words'"),
        ("CEF:0|a|b|c|d|e|5|words a=1", "the CEF extension begins with no key: 'words a=1'"),
    ],
)
def test_lines_that_are_no_cef(line: str, message: str) -> None:
    with pytest.raises(ValueFailure, match=re.escape(message)):
        syslog.parse_cef(line)


@given(
    st.lists(VALUES, min_size=6, max_size=6),
    st.dictionaries(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True), VALUES, max_size=4),
)
def test_cef_goes_round(header: list[str], extension: dict[str, str]) -> None:
    header = [each.replace("\r", "") for each in header]
    extension = {key: value.rstrip(" ") for key, value in extension.items()}
    top = "|".join(re.sub(r"([|\\])", r"\\\1", each) for each in header)
    pairs = []
    for key, value in extension.items():
        text = value.replace("\\", "\\\\").replace("=", "\\=").replace("\n", "\\n").replace("\r", "\\r")
        pairs.append(f"{key}={text}")
    line = f"CEF:0|{top}|{' '.join(pairs)}"
    assert syslog.parse_cef(line) == (dict(zip(syslog.HEADER, ["0", *header], strict=True)), extension)


@given(st.text(st.sampled_from("CEF:0|\\= \nab"), max_size=60), st.text(max_size=40))
def test_any_line_is_read_or_refused(line: str, more: str) -> None:
    for parse in (syslog.parse_syslog, syslog.parse_cef):
        for text in (line, more, f"<34>1 - - - - - {more}", f"CEF:0|a|b|c|d|e|5|{line}"):
            with contextlib.suppress(ValueFailure):
                parse(text)


@pytest.mark.parametrize("part", ["a", "=", "a=", " a=", "\\", "|", '" ', '[a b="', "a ", "] "])
def test_hostile_lines_need_no_step_backwards(part: str) -> None:
    """With one, half a million characters would take hours."""
    for parse in (syslog.parse_syslog, syslog.parse_cef):
        for head in (
            "",
            "<34>1 - - - - - ",
            '<34>1 - - - - - [a b="',
            "Oct 11 22:14:15 ",
            "CEF:0|",
            "CEF:0|a|b|c|d|e|5|",
        ):
            try:
                parse(head + part * 500_000)
            except ValueFailure:
                continue
