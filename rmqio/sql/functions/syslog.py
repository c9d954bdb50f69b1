"""Lines of syslog, of RFC 5424, RFC 3164 and CEF, to fields. No step backwards: the time is linear in their length."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Final

from rmqio.sql.values import ValueFailure, shown

# ArcSight's Common Event Format, `CEF:0|vendor|product|version|id|name|severity|key=value ...`, to fields.
#
# In the header, `\|` and `\\` are escapes; in the extension `\=`, `\\`, `\n` and `\r`. A value ends where the next
# key begins, so that it can have blanks in it.

HEADER: Final = (
    "cef_version", "device_vendor", "device_product", "device_version", "device_event_class_id", "name", "severity",
)  # fmt: skip
_BEGIN: Final = re.compile(r"(?<!\S)CEF:\s?([0-9]{1,3}(?:\.[0-9]{1,3})?)\|")
_PART: Final = re.compile(r"((?:[^|\\]|\\.)*+)\|", re.DOTALL)
_LAST_PART: Final = re.compile(r"((?:[^|\\]|\\.)*+)(?:\||$)", re.DOTALL)
_HEADER_ESCAPE: Final = re.compile(r"\\([|\\])")
_KEY: Final = re.compile(r"(?:^|(?<=\s))([A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,254})=")
_ESCAPE: Final = re.compile(r"\\([=\\nr|])")
_MEANT: Final = {"n": "\n", "r": "\r"}


def parse_cef(line: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the header and the extension of an event. Raises `ValueFailure` if it is none."""
    header, text = split_cef(line)
    return header, cef_extension(text)


def split_cef(line: str) -> tuple[dict[str, str], str]:
    """Returns the header of an event, and the text of its extension. Raises `ValueFailure` if it is none.

    The text before `CEF:`, such as a header of syslog, is `prefix`.
    """
    line = line.rstrip("\r\n")
    begin = _BEGIN.search(line)
    if begin is None:
        raise ValueFailure(f"the line has no CEF: header: {shown(line)}")
    header = {"cef_version": begin[1]}
    if prefix := line[: begin.start()].strip():
        header["prefix"] = prefix
    at = begin.end()
    for name in HEADER[1:]:
        part = (_LAST_PART if name == HEADER[-1] else _PART).match(line, at)
        if part is None:
            raise ValueFailure(
                f"the CEF header has no {name}: it needs seven fields, each followed by |: {shown(line[at:])}"
            )
        header[name] = _HEADER_ESCAPE.sub(r"\1", part[1])
        at = part.end()
    return header, line[at:]


def cef_fields(header: dict[str, str], extension: dict[str, str]) -> dict[str, str]:
    """Returns all fields by name. A key of the extension is no field of the header, also if the line lacks that."""
    return {**{key: value for key, value in extension.items() if key != "prefix"}, **header}


def cef_extension(text: str) -> dict[str, str]:
    """Returns the pairs of an extension; of several with one key, the last counts. Raises `ValueFailure`."""
    text = text.lstrip(" ")
    keys = list(_KEY.finditer(text))
    if not keys:
        if text.strip():
            raise ValueFailure(f"the CEF extension has no key=value: {shown(text)}")
        return {}
    if keys[0].start():
        raise ValueFailure(f"the CEF extension begins with no key: {shown(text)}")
    found: dict[str, str] = {}
    for number, key in enumerate(keys):
        end = keys[number + 1].start() if number + 1 < len(keys) else len(text)
        # The blank before the next key is not part of the value, and those at the end of the line are padding.
        value = text[key.end() : end - 1] if end < len(text) else text[key.end() :].rstrip(" ")
        found[key[1]] = _ESCAPE.sub(lambda escape: _MEANT.get(escape[1], escape[1]), value)
    return found


FIELDS: Final = (
    "priority", "facility", "facility_label", "severity", "severity_label", "version", "timestamp", "hostname",
    "app_name", "proc_id", "msg_id", "structured_data", "message",
)  # fmt: skip
_FACILITIES: Final = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_SEVERITIES: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PRIORITY: Final = re.compile(r"<([0-9]{1,3})>")
_HEAD: Final = re.compile(r"([1-9][0-9]{0,2}) (\S++) (\S++) (\S++) (\S++) (\S++) ")
_INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_OLD_TIME: Final = re.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([ 0-3]?[0-9]) (?:([0-9]{4}) )?"
    r"([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?(?: ((?:19|20)[0-9]{2})(?= ))?"
    r"(?:(Z)| ?(UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?(?: ((?:19|20)[0-9]{2})(?= ))? "
)
"""The year can also stand after the time, as asctime() writes it, and so can a zone that no host is named like."""
_TAG: Final = re.compile(r"([^\s:\[\]]{1,256})(?:\[([^\]\s]{1,128})\])?:(?: |$)")
_HOST: Final = re.compile(r"\S++(?: |$)")
_ID: Final = re.compile(r'\[([^\s="\]]{1,256})')
_PARAMETER: Final = re.compile(r' ([^\s="\]]{1,256})="((?:[^"\\\]]|\\.)*+)"', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\\]])')
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse_syslog(line: str, *, rfc: str = "auto", year: int | None = None, zone: dt.tzinfo = dt.UTC) -> dict[str, str]:
    """Returns the fields of a line that it has. Raises `ValueFailure` if it is not a line of syslog.

    Args:
      line: with or without its priority, which files lack.
      rfc: `5424`, `3164`, or `auto`.
      year: of times without one, those of RFC 3164; None: that which makes the time nearest to the present.
      zone: of the same times, unless they have one.
    """
    line = line.rstrip("\r\n")
    found: dict[str, str] = {}
    priority = _PRIORITY.match(line)
    at = 0
    if priority is not None:
        number = int(priority[1])
        if number > 191:
            raise ValueFailure(f"<{number}> is not a priority of syslog: the largest is 191")
        facility, severity = divmod(number, 8)
        found = {
            "priority": str(number),
            "facility": str(facility),
            "facility_label": _FACILITIES[facility],
            "severity": str(severity),
            "severity_label": _SEVERITIES[severity],
        }
        at = priority.end()
    head = _HEAD.match(line + " ", at) if priority is not None and rfc != "3164" else None
    if head is not None and (head[2] == "-" or _INSTANT.fullmatch(head[2])):
        return _new(line, head, found)
    if rfc == "5424":
        raise ValueFailure(f"the line is not syslog of RFC 5424: {shown(line)}")
    return _old(line, at, found, year, zone)


def _new(line: str, head: re.Match[str], found: dict[str, str]) -> dict[str, str]:
    version, instant, host, app, process, message_id = head.groups()
    found["version"] = version
    names = ("timestamp", "hostname", "app_name", "proc_id", "msg_id")
    for name, text in zip(names, (instant, host, app, process, message_id), strict=True):
        if text != "-":
            found[name] = text
    at = head.end()
    end = _end_of_data(line, at)
    if line[at:end] != "-":
        found["structured_data"] = line[at:end]
    if end < len(line):
        if line[end] != " ":
            raise ValueFailure(f"structured data of syslog is followed by {shown(line[end:])}")
        found["message"] = line[end + 1 :].removeprefix("\ufeff")
    return found


def _end_of_data(line: str, at: int) -> int:
    if line.startswith("-", at):
        return at + 1
    end = max((end for *_, end in _elements(line, at)), default=at)
    if end == at:
        raise ValueFailure(f"the structured data of syslog is neither '-' nor [id name=\"value\"]: {shown(line[at:])}")
    return end


def _elements(line: str, at: int) -> Iterator[tuple[str, list[tuple[str, str]], int]]:
    """Yields the id, the parameters and the end of each element of structured data."""
    while (begin := _ID.match(line, at)) is not None:
        at = begin.end()
        parameters = []
        while (parameter := _PARAMETER.match(line, at)) is not None:
            parameters.append((parameter[1], _ESCAPED.sub(r"\1", parameter[2])))
            at = parameter.end()
        if not line.startswith("]", at):
            raise ValueFailure(f"the structured data of syslog does not end with ]: {shown(line[begin.start() :])}")
        at += 1
        yield begin[1], parameters, at


def structured(text: str) -> dict[str, str]:
    """Returns the parameters of structured data, by `id.name`; an element without any has its id, and an empty text."""
    found: dict[str, str] = {}
    for name, parameters, _ in _elements(text, 0):
        found |= {f"{name}.{key}": value for key, value in parameters} or {name: ""}
    return found


def _old(line: str, at: int, found: dict[str, str], year: int | None, zone: dt.tzinfo) -> dict[str, str]:
    instant = _INSTANT.match(line, at)
    if instant is not None and line.startswith(" ", instant.end()):  # of rsyslog, in files
        found["timestamp"] = instant[0]
        at = instant.end() + 1
    else:
        old = _OLD_TIME.match(line, at)
        if old is None:
            raise ValueFailure(f"the line is not syslog: {shown(line)}")
        found["timestamp"] = _instant(old, year, zone)
        at = old.end()
    host = _HOST.match(line, at)
    if host is None:
        raise ValueFailure(f"the line of syslog has no host: {shown(line)}")
    if not host[0].rstrip().endswith(":") or line.count(" ", at) == 0:
        found["hostname"] = host[0].rstrip(" ")
        at = host.end()
    tag = _TAG.match(line, at)
    if tag is not None:
        found["app_name"] = tag[1]
        if tag[2] is not None:
            found["proc_id"] = tag[2]
        at = tag.end()
    found["message"] = line[at:]
    return found


def _instant(old: re.Match[str], year: int | None, zone: dt.tzinfo) -> str:
    month, day, before, time, fraction, after, utc, offset, last = old.groups()
    own_year = before or after or last
    month_number = _MONTHS.index(month) + 1
    hour, minute, second = (int(each) for each in time.split(":"))
    try:
        if utc is not None or offset is not None:
            zone = _zone(offset)
        if own_year is not None or year is not None:
            years = [int(own_year or year or 0)]
        else:
            now = dt.datetime.now(dt.UTC)
            years = [now.year - 1, now.year, now.year + 1]
        moments = []
        for each in years:
            if month_number == 2 and int(day) == 29 and len(years) > 1 and not _is_leap(each):
                continue
            moments.append(dt.datetime(each, month_number, int(day), hour, minute, second, tzinfo=zone))
        if len(moments) > 1:
            moments.sort(key=lambda moment: abs(moment - now))
        if not moments:
            raise ValueError
        text = moments[0].astimezone(dt.UTC).isoformat()
    except (ValueError, OverflowError):
        raise ValueFailure(f"{shown(old[0].strip())} is not a time") from None
    return text.removesuffix("+00:00") + (fraction or "") + "Z"


def _zone(offset: str | None) -> dt.tzinfo:
    """The zone of `+02:00` and `+0200`; UTC for what is none. Raises `ValueError`."""
    if offset is None or offset[0] not in "+-":
        return dt.UTC
    minutes = int(offset[1:3]) * 60 + int(offset[-2:])
    return dt.timezone(dt.timedelta(minutes=-minutes if offset[0] == "-" else minutes))


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
