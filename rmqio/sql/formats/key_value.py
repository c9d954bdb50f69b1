"""Bodies of pairs: `a=1,b=2`, or `a:1 b:2` with other delimiters; columns by name.

A key that the table does not have is ignored, a missing one is NULL; of several with one name the last counts. Blanks
around keys, empty pairs, a byte order mark and a line break at the end are ignored; a body without a pair is a bad row.
An empty value is empty for STRING and BYTES, and NULL for anything else. There is no quoting: text with a delimiter in
it, or with a line break at the end of the body, is refused when it is written. NULL is written as no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import texts
from rmqio.sql.formats.base import (
    MARK,
    Fields,
    RowFailure,
    bounded,
    filled,
    is_cut,
    required,
    row_of_texts,
    utf8,
)
from rmqio.sql.formats.options import FormatOptions
from rmqio.sql.values import ValueFailure

_LINE_END: Final = b"\r\n"
_MARK_BEGINS: Final = b"\xef"


@dataclass(frozen=True, slots=True)
class KeyValueOptions:
    """The options of the format. `null`: the text that means NULL; None: there is none."""

    pair_delimiter: str = ","
    key_delimiter: str = "="
    null: str | None = None

    @staticmethod
    def of(options: FormatOptions) -> KeyValueOptions:
        """Returns the options of a table. Raises `Refusal`."""
        name = "delimiter" if options.has("delimiter") and not options.has("pair_delimiter") else "pair_delimiter"
        found = KeyValueOptions(
            options.separator(name, ","),
            options.separator("key_delimiter", "="),
            options.text("key_value_null", "") if options.has("key_value_null") else None,
        )
        if found.key_delimiter in found.pair_delimiter or found.pair_delimiter in found.key_delimiter:
            given = next(each for each in ("key_delimiter", name) if options.has(each))
            raise options.refusal(given, "is a part of the other delimiter, or has it")
        return found


def require_names(fields: Fields, options: KeyValueOptions) -> None:
    """Raises `Refusal` for a column whose name cannot be a key."""
    for each in fields:
        if each.name != each.name.strip() or any(
            is_cut(each.name, delimiter) for delimiter in (options.pair_delimiter, options.key_delimiter)
        ):
            raise Refusal(f"the column {each.name!r} has blanks around it, or a delimiter: it cannot be a key", None)


class KeyValueDecoder:
    """See `formats.base.Decoder`. `fast` returns the values by key."""

    def __init__(self, table: Table, fields: Fields, options: KeyValueOptions) -> None:
        self._known = frozenset(each.name for each in table.columns if each.is_physical)
        self._fields, self._pair, self._key = fields, options.pair_delimiter, options.key_delimiter
        self._readers = [texts.nullable_reader(each.type, options.null) for each in fields]
        # A name in braces would be a place of `str.format`.
        names = [repr(each.name).replace("{", "{{").replace("}", "}}") for each in fields]
        self.columns = [
            f"{{}}.get({name})" if each.type.is_nullable else f"{{}}[{name}]"
            for name, each in zip(names, fields, strict=True)
        ]
        self.converters = [required(each.type, read) for each, read in zip(fields, self._readers, strict=True)]

    def fast(self, body: bytes) -> dict[str, str]:
        """Decodes a usual body. Raises anything for another one."""
        key = self._key
        if body[-1:] in _LINE_END or body[:1] == _MARK_BEGINS:
            raise ValueError
        found = dict([pair.split(key, 1) for pair in body.decode().split(self._pair)])
        if not self._known.issuperset(found) and any(each != each.strip() for each in found):
            raise ValueError
        return found

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        found: dict[str, str] = {}
        text = utf8(body).removeprefix(MARK).removesuffix("\n").removesuffix("\r")
        for pair in text.split(self._pair):
            key, delimiter, value = pair.partition(self._key)
            if delimiter:
                found[key.strip()] = value
            elif pair.strip():
                raise RowFailure(f"{bounded(pair)!r} has no {self._key!r} between a key and a value")
        if not found:
            raise RowFailure("the body has no pair of a key and a value")
        return row_of_texts(self._fields, self._readers, found, "the key is missing", "the value is")


class KeyValueEncoder:
    """See `formats.base.Encoder`."""

    def __init__(self, fields: Fields, options: KeyValueOptions) -> None:
        writers = [_pair_writer(each.name, texts.writer(each.type), options) for each in fields]
        self.constants: dict[str, Any] = {f"pair_{i}": each for i, each in enumerate(writers)}
        self.constants["pairs_body"] = _body
        self._delimiter = options.pair_delimiter

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        pairs = ", ".join(f"pair_{i}({name})" for i, name in enumerate(names))
        return f"pairs_body({self._delimiter!r}.join(filter(None, ({pairs},))))"


def _body(text: str) -> bytes:
    if text[-1:] in ("\n", "\r"):
        raise ValueFailure("the text of the last column ends with a line break, which readers take for the body's end")
    return filled(text.encode())


def _pair_writer(
    name: str, write: Callable[[Any], str] | None, options: KeyValueOptions
) -> Callable[[Any], str | None]:
    delimiter, null, begin = options.pair_delimiter, options.null, name + options.key_delimiter

    def of(value: Any) -> str | None:
        if value is None:
            return None
        text: str = value if write is None else write(value)
        if is_cut(text, delimiter):
            raise ValueFailure(f"column {name}: {bounded(text)!r} has the delimiter {delimiter!r}; nothing quotes it")
        if null is not None and text == null:
            raise ValueFailure(f"column {name}: the text {null!r} is the null literal")
        return begin + text

    return of
