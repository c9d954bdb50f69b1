"""Functions of regular expressions. They are Java's, as far as Python has the same: see `regular_expression`.

A text for which an expression takes too long makes its row bad.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rmqio.sql.functions import grok, syslog
from rmqio.sql.functions.registry import define
from rmqio.sql.regexes import Pattern, compiled, members
from rmqio.sql.values import ValueFailure, shown

# Functions of lines of logs. A text that is no such line gives NULL.


def grok_fields(text: str, pattern: str) -> dict[str, str] | None:
    """Returns the fields of a grok pattern; None: it does not match. Raises `ValueFailure`."""
    return grok.compiled(pattern).match(text)


def syslog_fields(text: str) -> dict[str, str] | None:
    """Returns the fields of a line of syslog, and the parameters of its structured data by `id.name`."""
    try:
        found = syslog.parse_syslog(text)
        return {**syslog.structured(found.get("structured_data", "")), **found}
    except ValueFailure:
        return None


def cef_fields(text: str) -> dict[str, str] | None:
    """Returns the header and the extension of an event in CEF."""
    try:
        header, extension = syslog.parse_cef(text)
    except ValueFailure:
        return None
    return syslog.cef_fields(header, extension)


define("GROK", "s s -> ms", grok_fields, can_be_null=True, constants={1: grok.compiled})
define("PARSE_SYSLOG", "s -> ms", syslog_fields, can_be_null=True, is_pure=False)  # a year can be the present one
define("PARSE_CEF", "s -> ms", cef_fields, can_be_null=True)


_CLASSES: Final = {
    "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9", "Upper": "A-Z", "Lower": "a-z", "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f", "Graph": "!-~", "Print": " -~",
    "Punct": r"!-/:-@\[-`{-~", "ASCII": r"\x00-\x7f",
}  # fmt: skip
_JAVA: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\p(?:\{(?P<in_class>[^}]+)\}|(?P<in_letter>\w))"
    r"|\\P(?:\{(?P<not_in_class>[^}]+)\}|(?P<not_in_letter>\w))"
    r"|\\k<(?P<reference>\w+)>|\(\?<(?P<group>[a-zA-Z]\w*)>|(?P<other>\\.|\[\^?\]?|\]|&&)",
    re.DOTALL,
)
_OTHERS: Final = {r"\z": r"\Z", r"\Z": r"(?=\n?\Z)", r"\h": r"[ \t\xa0]", r"\R": r"(?:\r\n|[\n-\r])", r"\e": r"\x1b"}


@lru_cache(maxsize=1000)
def regular_expression(pattern: str) -> Pattern:
    r"""Returns the compiled pattern of Java. Raises `ValueFailure` if it is none.

    As in Java, `\d`, `\w`, `\s` and `(?i)` mean ASCII. Of Unicode, categories (`\p{L}`) are known, and no scripts.
    """
    return compiled(_translated(pattern), re.ASCII, pattern)


def _translated(pattern: str) -> str:
    in_set = False

    def unknown(written: str) -> ValueFailure:
        known = r"categories of Unicode (\p{L}, \p{Lu}) and POSIX classes (\p{Alpha}), but no scripts"
        return ValueFailure(f"{shown(pattern)}: there is no {written}{' here' * in_set}; there are {known}")

    def part(found: re.Match[str]) -> str:
        nonlocal in_set
        if found["quoted"] is not None:
            return re.escape(found["quoted"])
        if name := found["in_class"] or found["in_letter"]:
            characters = _CLASSES.get(name) or members(name)
            if characters is None:
                raise unknown(found[0])
            return characters if in_set else f"[{characters}]"
        if name := found["not_in_class"] or found["not_in_letter"]:
            if name in _CLASSES and not in_set:
                return f"[^{_CLASSES[name]}]"
            characters = members(name, is_negated=True)
            if characters is None:
                raise unknown(found[0])
            return characters if in_set else f"[{characters}]"
        if found["reference"] is not None:
            return f"(?P={found['reference']})"
        if found["group"] is not None:
            return f"(?P<{found['group']}>"
        other = found["other"]
        if in_set and other[0] in "[&":  # which `re` would take for characters
            hint = rf"escape it: \{other[0]}" if other[0] == "[" else "write the class that is meant"
            raise ValueFailure(f"{shown(pattern)}: {other} within a class (Java's union or intersection); {hint}")
        if other[0] == "[":
            in_set = True
        elif other == "]":
            in_set = False
        return _OTHERS.get(other, other)

    return _JAVA.sub(part, pattern)


def matches(text: str, pattern: str) -> bool:
    """Returns whether a part of the text matches the regular expression; nothing matches an empty one."""
    return pattern != "" and regular_expression(pattern).search(text) is not None


def extract(text: str, pattern: str, group: int = 0) -> str | None:
    """Returns a group of the first match; None: nothing matches, or there is no such group."""
    expression = regular_expression(pattern)
    found = expression.search(text)
    return found[group] if found and 0 <= group <= expression.groups else None


def extract_all(text: str, pattern: str, group: int = 1) -> list[str | None] | None:
    """Returns a group of all matches; None: there is no such group."""
    expression = regular_expression(pattern)
    return [each[group] for each in expression.all(text)] if 0 <= group <= expression.groups else None


def replace(text: str, pattern: str, replacement: str) -> str:
    """Returns the text with all matches replaced; the replacement is taken as it is, without `$1`."""
    return regular_expression(pattern).replace(text, replacement)


def count(text: str, pattern: str) -> int:
    """Returns how many matches there are."""
    return len(regular_expression(pattern).all(text))


def position(text: str, pattern: str) -> int:
    """Returns where the first match begins, counted from 1; 0: nothing matches."""
    found = regular_expression(pattern).search(text)
    return found.start() + 1 if found else 0


def text_to_map(text: str, pair_end: str = ",", key_end: str = "=") -> dict[str, str | None]:
    """Returns the map of `a=1,b=2`; the separators are regular expressions. A key without a value has NULL."""
    if not text:
        return {}
    found: dict[str, str | None] = {}
    between = regular_expression(key_end)
    for pair in _parts(text, regular_expression(pair_end)):
        end = next((each for each in between.all(pair) if each.end()), None)
        if end is None:
            found[pair] = None
        else:
            found[pair[: end.start()]] = pair[end.end() :]
    return found


def _parts(text: str, separator: Pattern) -> list[str]:
    """The text between separators, as Java splits: empty parts at the end do not count."""
    parts, start = [], 0
    for each in separator.all(text):
        if each.end():
            parts.append(text[start : each.start()])
            start = each.end()
    parts.append(text[start:])
    while parts and not parts[-1]:
        parts.pop()
    return parts


_CHECKED: Final = {1: regular_expression}
define("RLIKE, REGEXP", "s s -> b", matches, constants=_CHECKED)
define("REGEXP_EXTRACT", "s s [i] -> s", extract, can_be_null=True, constants=_CHECKED)
define("REGEXP_EXTRACT_ALL", "s s [i] -> as", extract_all, can_be_null=True, constants=_CHECKED)
define("REGEXP_REPLACE", "s s s -> s", replace, constants=_CHECKED)
define("REGEXP_COUNT", "s s -> i", count, constants=_CHECKED)
define("REGEXP_INSTR", "s s -> i", position, constants=_CHECKED)
define("REGEXP_SUBSTR", "s s -> s", extract, can_be_null=True, constants=_CHECKED)
define("STR_TO_MAP", "s [s] [s] -> ms", text_to_map, constants={1: regular_expression, 2: regular_expression})
