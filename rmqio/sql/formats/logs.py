"""The formats of logs: a body is one line, whose fields become columns by name. A mark of UTF-8 before it is no text.

A field that the line lacks is NULL; an empty one is empty for STRING, and NULL for anything else.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any, Final

from rmqio.sql.catalog.format_options import PATTERN, FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal, listed, nearest
from rmqio.sql.formats import texts
from rmqio.sql.formats.base import (
    MARK,
    Convert,
    Fields,
    RowFailure,
    bounded,
    required,
    row_of_texts,
    utf8,
)
from rmqio.sql.functions import grok, syslog
from rmqio.sql.planning.plan import Field
from rmqio.sql.regexes import TIMEOUT_S
from rmqio.sql.values import ValueFailure

FORMATS: Final = ("grok", "syslog", "cef")
_LONGEST: Final = 65_536
_MAPS: Final[dict[str, dict[str, Convert]]] = {
    "grok": {},
    "syslog": {"structured_data": syslog.structured},
    "cef": {"extension": syslog.cef_extension},
}
"""Columns that can be MAP<STRING, STRING>, and what makes the map of the field's text."""

Parse = Callable[[str], Mapping[str, str]]


def check(table: Table, fields: Fields, options: FormatOptions) -> None:
    """Raises `Refusal` if the options or the columns do not fit the format."""
    of_maps = _MAPS[table.options.format]
    for each in fields:
        if each.type.elements and (each.name not in of_maps or not _is_map_of_text(each)):
            maps = "".join(f"; only {name} can be MAP<STRING, STRING>" for name in of_maps)
            raise Refusal(f"the column {each.name} is {each.type.text}, which a field of a line cannot be{maps}", None)
    _longest(options)
    match table.options.format:
        case "grok":
            _require_known(fields, _grok(options).names, "the grok pattern has")
        case "syslog":
            _require_known(fields, syslog.FIELDS, "a line of syslog has")
            _syslog(options)


def decoder_of(table: Table, fields: Fields, options: FormatOptions) -> LineDecoder:
    """Returns the decoder of a table's lines. Raises `Refusal`."""
    name = table.options.format
    return LineDecoder(fields, _parse_of(name, options), _MAPS[name], _longest(options))


def _parse_of(name: str, options: FormatOptions) -> Parse:
    match name:
        case "grok":
            pattern = _grok(options)
            return lambda line: _matched(pattern, line)
        case "syslog":
            return _syslog(options)
    return _event


def _matched(pattern: grok.Grok, line: str) -> Mapping[str, str]:
    found = pattern.match(line.rstrip("\r\n"))
    if found is None:
        raise ValueFailure(f"the line does not match the grok pattern: {bounded(line)!r}")
    return found


def _event(line: str) -> Mapping[str, str]:
    header, text = syslog.split_cef(line)
    return {**syslog.cef_fields(header, syslog.cef_extension(text)), "extension": text}


def _grok(options: FormatOptions) -> grok.Grok:
    if not options.has("grok_pattern"):
        raise Refusal("the format grok needs the option 'grok.pattern', as in '%{COMMONAPACHELOG}'", None)
    own = {name: options.text(PATTERN + name, "") for name in options.patterns()}
    try:
        for name in own:
            grok.compiled(f"%{{{name}}}", own)
    except grok.WrongPattern as error:
        raise options.refusal(PATTERN + name, f"is not valid: {error}") from None
    try:
        return grok.compiled(options.text("grok_pattern", ""), own, _timeout_s(options))
    except grok.WrongPattern as error:
        raise options.refusal("grok_pattern", f"is not valid: {error}") from None


def _timeout_s(options: FormatOptions) -> float:
    text = options.text("grok_timeout", "").strip()
    if not text:
        return TIMEOUT_S
    number, _, unit = text.partition(" ")
    if not number.isdecimal() or not number.isascii() or unit.strip() != "ms" or not 1 <= int(number) <= 60_000:
        raise options.refusal("grok_timeout", f"is {text!r}; it must be like '250 ms', at most 60000 ms")
    return int(number) / 1000


def _syslog(options: FormatOptions) -> Parse:
    rfc = options.one_of("syslog_rfc", ("auto", "3164", "5424"), "auto")
    year = None
    if options.has("syslog_year"):
        text = options.text("syslog_year", "").strip()
        if not (len(text) == 4 and text.isdecimal() and text.isascii() and text != "0000"):
            raise options.refusal("syslog_year", f"is {text!r}; it must be like '2024'")
        year = int(text)
    name = options.text("syslog_zone", "UTC").strip()
    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        hint = nearest(name, zoneinfo.available_timezones())
        raise options.refusal("syslog_zone", f"is {name!r}, which is not a time zone{hint}") from None
    return lambda line: syslog.parse_syslog(line, rfc=rfc, year=year, zone=zone)


def _longest(options: FormatOptions) -> int:
    if not options.has("line_length"):
        return _LONGEST
    text = options.text("line_length", "").strip()
    if not text.isdecimal() or not text.isascii() or not 1 <= len(text) <= 8 or int(text) < 1:
        raise options.refusal("line_length", f"is {text!r}; it must be a number of bytes")
    return int(text)


def _is_map_of_text(field: Field) -> bool:
    return field.type.kind == "MAP" and all(each.kind == "VARCHAR" for each in field.type.elements)


def _require_known(fields: Fields, known: Any, what: str) -> None:
    for each in fields:
        if each.name not in known:
            names = listed(known, "and") if known else "no fields"
            hint = nearest(each.name, known) or f"; {what} {names}"
            raise Refusal(f"there is no field {each.name}{hint}", None)


class LineDecoder:
    """See `formats.base.Decoder`. `fast` returns the fields by name."""

    def __init__(self, fields: Fields, parse: Parse, maps: Mapping[str, Convert], longest: int) -> None:
        self._fields, self._parse, self._longest = fields, parse, longest
        self._readers = [
            maps[each.name] if each.type.kind == "MAP" else texts.nullable_reader(each.type, None) for each in fields
        ]
        names = [repr(each.name).replace("{", "{{").replace("}", "}}") for each in fields]
        self.columns = [
            f"{{}}.get({name})" if each.type.is_nullable else f"{{}}[{name}]"
            for name, each in zip(names, fields, strict=True)
        ]
        self.converters = [required(each.type, read) for each, read in zip(fields, self._readers, strict=True)]

    def fast(self, body: bytes) -> Mapping[str, str]:
        """Decodes a line. Raises anything for what is none."""
        if len(body) > self._longest:
            raise ValueError
        return self._parse(body.decode().removeprefix(MARK))

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        if len(body) > self._longest:
            raise RowFailure(f"the line has {len(body)} bytes, more than the maximum of {self._longest}")
        try:
            found = self._parse(utf8(body).removeprefix(MARK))
        except RowFailure:
            raise
        except ValueFailure as error:
            raise RowFailure(error.reason) from None
        return row_of_texts(self._fields, self._readers, found, "the line has no such field", "the field is")
