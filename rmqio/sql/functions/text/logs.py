"""Functions of lines of logs. A text that is no such line gives NULL."""

from __future__ import annotations

from rmqio.sql.formats.logs import cef, grok, syslog
from rmqio.sql.functions.registry import define
from rmqio.sql.values import ValueFailure


def grok_fields(text: str, pattern: str) -> dict[str, str] | None:
    """Returns the fields of a grok pattern; None: it does not match. Raises `ValueFailure`."""
    return grok.compiled(pattern).match(text)


def syslog_fields(text: str) -> dict[str, str] | None:
    """Returns the fields of a line of syslog, and the parameters of its structured data by `id.name`."""
    try:
        found = syslog.parse(text)
        return {**syslog.structured(found.get("structured_data", "")), **found}
    except ValueFailure:
        return None


def cef_fields(text: str) -> dict[str, str] | None:
    """Returns the header and the extension of an event in CEF."""
    try:
        header, extension = cef.parse(text)
    except ValueFailure:
        return None
    return cef.fields_of(header, extension)


define("GROK", "s s -> ms", grok_fields, can_be_null=True, constants={1: grok.compiled})
define("PARSE_SYSLOG", "s -> ms", syslog_fields, can_be_null=True, is_pure=False)  # a year can be the present one
define("PARSE_CEF", "s -> ms", cef_fields, can_be_null=True)
