r"""ArcSight's Common Event Format, `CEF:0|vendor|product|version|id|name|severity|key=value ...`, to fields.

In the header, `\|` and `\\` are escapes; in the extension `\=`, `\\`, `\n` and `\r`. A value ends where the next key
begins, so that it can have blanks in it.
"""

from __future__ import annotations

import re
from typing import Final

from rmqio.sql.values import ValueFailure, shown

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


def parse(line: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the header and the extension of an event. Raises `ValueFailure` if it is none."""
    header, text = split(line)
    return header, extension_of(text)


def split(line: str) -> tuple[dict[str, str], str]:
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


def fields_of(header: dict[str, str], extension: dict[str, str]) -> dict[str, str]:
    """Returns all fields by name. A key of the extension is no field of the header, also if the line lacks that."""
    return {**{key: value for key, value in extension.items() if key != "prefix"}, **header}


def extension_of(text: str) -> dict[str, str]:
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
