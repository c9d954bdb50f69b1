"""Options of formats, as CREATE TABLE gives them: read, checked, and refused at the place where they stand."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rmqio.sql.catalog.option_checks import folded_key
from rmqio.sql.errors import Refusal, listed, nearest
from rmqio.sql.syntax.statements import Option

NAMES: Final = frozenset({
    "format", "is_json", "delimiter", "length_check", "csv_quote", "csv_no_quote", "csv_escape", "csv_comments",
    "csv_null", "raw_charset", "raw_endianness", "pair_delimiter", "key_delimiter", "key_value_null", "json_times",
    "json_fail_on_missing", "json_no_nulls", "json_null_keys", "json_null_key", "json_plain", "avro_schema",
    "avro_file", "avro_encoding", "registry_url", "registry_subject", "grok_pattern", "grok_timeout", "syslog_rfc",
    "syslog_year", "syslog_zone", "line_length", "json_schema", "json_file", "protobuf_descriptor", "protobuf_file",
    "protobuf_message", "protobuf_defaults",
})  # fmt: skip
"""The options, by their names in `catalog.options`, that formats read."""
PATTERN: Final = "grok.patterns."
"""Before the name of a grok pattern of a table's own."""
_PREFIXES: Final = (
    "json", "csv", "raw", "key-value", "avro", "avro-confluent", "avro-openschema", "json-confluent", "protobuf",
    "protobuf-confluent", "grok", "syslog", "cef",
)  # fmt: skip
_UNPREFIXED: Final = {
    "delimiter": ("csv", "key-value"),
    "length_check": ("csv",),
    "first_line": ("csv",),
    **dict.fromkeys(
        ("registry_url", "registry_subject"),
        ("avro-confluent", "avro-openschema", "json-confluent", "protobuf-confluent"),
    ),
}
"""The formats of options that have spellings without a format before them, by names in `catalog.options`."""
_FILES: Final = {"avro_file": "avro_schema", "json_file": "json_schema", "protobuf_file": "protobuf_descriptor"}
"""Options that name a file, and those that it is read into."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([tnrbf0\\'\"])|([ux]))")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


def of_format(found: Mapping[str, Option], format_name: str) -> dict[str, Option]:
    """Returns the options that concern formats. The file of a schema is read, and becomes the schema.

    Raises `Refusal` for a file that cannot be read.
    """
    kept = {name: option for name, option in found.items() if name in NAMES or name.startswith(PATTERN)}
    for file, schema in _FILES.items():
        if file not in kept:
            continue
        option = kept.pop(file)
        if schema in kept:
            raise Refusal(f"{option.key!r} and {kept[schema].key!r} both give the schema", option.span)
        try:
            data = Path(option.value.strip()).read_bytes()
            text = base64.b64encode(data).decode("ascii") if file == "protobuf_file" else data.decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Refusal(f"the schema's file {option.value!r} cannot be read: {reason}", option.value_span) from None
        kept[schema] = replace(option, value=text)
    return kept


def check_own(found: Mapping[str, Option], format_name: str, known: Sequence[str]) -> None:
    """Raises `Refusal` for an option of other formats than the table's. `known`: the formats that a table can have.

    A table of rocketmq-flink that has `isJsonData` says its format with that: its other options may be the same as
    those of its other tables.
    """
    for name, option in found.items():
        prefix = prefix_of(option)
        if prefix:
            owners: Sequence[str] = (prefix,)
            is_own = prefix == format_name or format_name.startswith(f"{prefix}-")
        else:
            owners = () if "is_json" in found else _UNPREFIXED.get(name, ())
            is_own = not owners or format_name in owners
        if not is_own:
            way = f", or write 'format' = {owners[0]!r}" if owners[0] in known else ""
            raise Refusal(
                f"the option {option.key!r} is of the format {listed(owners)}, not of {format_name}: leave it out{way}",
                option.span,
            )


def prefix_of(option: Option) -> str | None:
    """Returns the format that the option's name begins with, as in `csv.null-literal`; None: with none."""
    folded = folded_key(option.key).removeprefix("value")
    return max((each for each in _PREFIXES if folded.startswith(folded_key(each))), key=len, default=None)


def pattern_named(option: Option) -> str | None:
    """Returns the name of the option of a grok pattern, `grok.patterns.NAME`; None: it is none. Raises `Refusal`."""
    if not option.key.lower().startswith(PATTERN):
        return None
    name = option.key[len(PATTERN) :]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise Refusal(f"{name!r} is not the name of a grok pattern: letters, digits and _", option.span)
    return PATTERN + name


class FormatOptions:
    """The options of a table's format."""

    def __init__(self, options: Mapping[str, Option]) -> None:
        self._options = options

    def has(self, name: str) -> bool:
        """Returns whether the option is given."""
        return name in self._options

    def patterns(self) -> list[str]:
        """Returns the names of the table's own grok patterns."""
        return [each.removeprefix(PATTERN) for each in self._options if each.startswith(PATTERN)]

    def text(self, name: str, default: str) -> str:
        """Returns the text of an option, with its blanks."""
        return self._options[name].value if name in self._options else default

    def is_true(self, name: str) -> bool:
        """Returns whether the option is true. Raises `Refusal` unless it is true or false."""
        return self.one_of(name, ("true", "false"), "false") == "true"

    def one_of(self, name: str, known: Sequence[str], default: str) -> str:
        """Returns one of the known values, spelled as there. Raises `Refusal` for another one."""
        value = self.text(name, default).strip()
        for each in known:
            if each.lower() == value.lower():
                return each
        raise self.refusal(name, f"is {value!r}{nearest(value, known) or '; it can be ' + ', '.join(known)}")

    def separator(self, name: str, default: str) -> str:
        """Returns a text that separates others, in which escapes are replaced. Raises `Refusal` if it is empty."""
        value = self._unescaped(name, default)
        if not value:
            raise self.refusal(name, "is empty")
        return value

    def character(self, name: str, default: str) -> str:
        """Returns one character, or none as the default. Raises `Refusal` for more."""
        value = self._unescaped(name, default)
        if len(value) != 1 and name in self._options:
            raise self.refusal(name, f"is {value!r}; it must be one character")
        return value

    def _unescaped(self, name: str, default: str) -> str:
        text = self.text(name, default)
        if any(found[4] for found in _ESCAPE.finditer(text)):
            raise self.refusal(name, f"is {text!r}; an escape has all of its digits, as '\\u0001' and '\\x01'")
        try:
            # Two escapes may be the halves of one character.
            return _ESCAPE.sub(_character, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise self.refusal(name, f"is {text!r}, which is half of a surrogate pair") from None

    def refusal(self, name: str, problem: str) -> Refusal:
        """Returns the refusal of an option's value."""
        option = self._options[name]
        return Refusal(f"{option.key} {problem}", option.value_span)


def _character(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPED.get(found[3], found[3])
