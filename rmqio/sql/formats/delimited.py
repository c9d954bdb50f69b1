"""Bodies of delimited text: CSV, with columns by position, and pairs of keys and values, with columns by name."""

from __future__ import annotations

import csv
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.errors import counted
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import texts
from rmqio.sql.formats.base import (
    CONVERSIONS,
    MARK,
    Convert,
    Fields,
    RowFailure,
    bounded,
    filled,
    is_cut,
    reason_of,
    required,
    row_of_texts,
    utf8,
)
from rmqio.sql.formats.texts import SURE_DIGITS
from rmqio.sql.planning.plan import Field
from rmqio.sql.types import BITS
from rmqio.sql.values import ValueFailure

# Bodies of pairs: `a=1,b=2`, or `a:1 b:2` with other delimiters; columns by name.
#
# A key that the table does not have is ignored, a missing one is NULL; of several with one name the last counts.
# Blanks around keys, empty pairs, a byte order mark and a line break at the end are ignored; a body without a pair is
# a bad row. An empty value is empty for STRING and BYTES, and NULL for anything else. There is no quoting: text with
# a delimiter in it, or with a line break at the end of the body, is refused when it is written. NULL is written as no
# pair.

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


_PLAIN: Final = frozenset(f"{string.ascii_letters}{string.digits}+-.:/= ")
"""The characters of everything but text."""
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The options of the format. `quote` and `escape` are a character or nothing.

    Attributes:
      null: the text that means NULL, escapes replaced; None: there is none.
      raw_null: the text that means NULL as it stands, since it has the escape character; None: there is none.
      has_comments: whether lines that begin with # are left out.
      cuts, pads: whether further fields are ignored, and missing ones are NULL.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    null: str | None = None
    raw_null: str | None = None
    has_comments: bool = False
    cuts: bool = False
    pads: bool = False

    @staticmethod
    def of(options: FormatOptions) -> CsvOptions:
        """Returns the options of a table. Raises `Refusal`."""
        quote = options.character("csv_quote", '"' if options.has("format") or options.has("is_json") else "")
        if options.is_true("csv_no_quote"):
            if options.has("csv_quote"):
                raise options.refusal("csv_no_quote", "is true, and there is a quote character, too")
            quote = ""
        delimiter, escape = options.separator("delimiter", ","), options.character("csv_escape", "")
        has_comments, null = options.is_true("csv_comments"), options.text("csv_null", "")
        given = {"delimiter": delimiter, "csv_quote": quote, "csv_escape": escape, "csv_null": null}
        for name, special in given.items():
            if "\n" in special or "\r" in special:
                raise options.refusal(name, "has a line break, which ends the row")
            if has_comments and special.startswith("#"):
                raise options.refusal(name, "begins with #, as comments do: the table has csv.allow-comments")
        if escape in _ESCAPED:
            raise options.refusal("csv_escape", f"is {escape!r}, which stands for another character when it is escaped")
        if any(is_cut(null, each) for each in (delimiter, quote) if each):
            raise options.refusal("csv_null", f"is {null!r}, which has a special character of the format")
        is_raw = bool(escape) and escape in null
        if is_raw and (len(null) - len(null.rstrip(escape))) % 2:
            raise options.refusal("csv_null", f"is {null!r}, which escapes what comes after it")
        if len({delimiter, quote, escape} - {""}) < 1 + bool(quote) + bool(escape):
            name = next(each for each in ("delimiter", "csv_quote", "csv_escape") if options.has(each))
            raise options.refusal(name, "is the same as another special character of the format")
        check = options.one_of("length_check", ("NONE", "SKIP", "EXCEPTION", "CUT", "PAD"), "EXCEPTION")
        return CsvOptions(
            delimiter, quote, escape, None if is_raw or not options.has("csv_null") else null, null if is_raw else None,
            has_comments, check in ("NONE", "CUT", "PAD"), check == "PAD",
        )  # fmt: skip


class CsvDecoder:
    """See `formats.base.Decoder`. `fast` returns the list of fields."""

    def __init__(self, table: Table, fields: Fields, options: CsvOptions) -> None:
        names = [each.name for each in table.columns if each.is_physical]
        self._fields, self._options, self._count = fields, options, len(names)
        self._places = [names.index(each.name) for each in fields]
        self._readers = [texts.nullable_reader(each.type, options.null) for each in fields]
        self.columns = []
        self.converters: list[Convert | None] = []
        for each, place, read in zip(fields, self._places, self._readers, strict=True):
            digits = _digits(each, place, options)
            self.columns.append(digits or f"{{}}[{place}]")
            self.converters.append(None if digits else required(each.type, read))
        self.fast = _usual(options, self._count)
        """Decodes a usual body. Raises anything for another one."""

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        given = self._split(utf8(body).removeprefix(MARK))
        found, wanted = counted(len(given), "field"), counted(self._count, "column")
        if len(given) > self._count and not self._options.cuts:
            raise RowFailure(f"the body has {found}, but the table has {wanted}")
        if len(given) < self._count:
            if not self._options.pads:
                raise RowFailure(f"the body has only {found}, but the table has {wanted}")
            given += [None] * (self._count - len(given))
        row = []
        for each, place, read in zip(self._fields, self._places, self._readers, strict=True):
            text = given[place]
            try:
                value = text if read is None or text is None else read(text)
            except CONVERSIONS as error:
                raise RowFailure(reason_of(error), each.name) from None
            if value is None and not each.type.is_nullable:
                raise RowFailure(f"it is NOT NULL, but the field is {text!r:.50}", each.name)
            row.append(value)
        return tuple(row)

    def _split(self, text: str) -> list[str | None]:
        lines = _lines(text, self._options)
        found = next(lines, None)
        if found is None:
            raise RowFailure("the body has only comments")
        if next(lines, None) is not None:
            raise RowFailure("the body has several lines; a message is one row")
        return found


def _usual(options: CsvOptions, count: int) -> Callable[[bytes], Sequence[str]]:
    """Returns the decoder of usual bodies: the fields of one line."""
    delimiter, quote = options.delimiter, options.quote
    unusual = [each for each in (options.escape, "#" if options.has_comments else "") if each]
    read = _reader_of_lines(options)

    def fast(body: bytes) -> Sequence[str]:
        text = body.decode()
        if "\n" in text or "\r" in text:
            text = text.removesuffix("\n").removesuffix("\r")
            if not (quote and quote in text) and ("\n" in text or "\r" in text):
                raise ValueError
        if unusual and any(each in text for each in unusual):
            raise ValueError
        found = read(text) if quote and quote in text else text.split(delimiter)
        if len(found) != count or (not text.isascii() and text[:1] == MARK):
            raise ValueError
        return found

    return fast


def _digits(field: Field, place: int, options: CsvOptions) -> str:
    """Python for an integer in its usual form, without a call; for another field nothing.

    Text in another form raises `TypeError`, and the body is decoded by `exact`.
    """
    bits = BITS.get(field.type.kind)
    if bits is None or options.null is not None:
        return ""
    text = f"t{place}"
    is_usual = f"({text} := {{0}}[{place}]).lstrip('-').isdigit() and {text}.isascii()"
    otherwise = f"None if not {text} else {{0}}[None]" if field.type.is_nullable else "{0}[None]"
    return f"(int({text}) if {is_usual} and len({text}) <= {SURE_DIGITS[bits]} else {otherwise})"


def _reader_of_lines(options: CsvOptions) -> Callable[[str], list[str]]:
    """Returns the fast reader of a body with quotes. It raises anything for what it does not read."""
    if len(options.delimiter) > 1 or not options.quote:
        return _refuse
    given: list[str] = []
    reader = csv.reader(iter(given.pop, None), delimiter=options.delimiter, quotechar=options.quote, strict=True)

    def read(text: str) -> list[str]:
        # It raises csv.Error for fields above its limit, text after a quote and several lines, and IndexError without
        # the end of a quote, since `given` has no second line.
        if text[-1] in "\r\n":  # it would be left out, however many there are
            raise ValueError
        given.append(text)
        return next(reader)

    return read


def _refuse(text: str) -> list[str]:
    raise ValueError


def _lines(text: str, options: CsvOptions) -> Iterator[list[str | None]]:
    """The fields of each line; None: it is the raw null literal. Raises `RowFailure`."""
    delimiter, quote, escape = options.delimiter, options.quote, options.escape
    at, end = 0, len(text)
    while at < end or at == 0:
        if options.has_comments and text.startswith("#", at):
            at = next((place for place in range(at, end) if text[place] in "\r\n"), end)
            at += 2 if text.startswith("\r\n", at) else 1
            continue
        row: list[str | None] = []
        while True:
            field, at = _raw_null(text, at, options) or _field(text, at, delimiter, quote, escape)
            row.append(field)
            if not text.startswith(delimiter, at):
                break
            at += len(delimiter)
        if at < end and text[at] not in "\r\n":
            raise RowFailure(f"there is text after the quotes of field {len(row)}")
        at += 2 if text.startswith("\r\n", at) else 1
        yield row


def _raw_null(text: str, at: int, options: CsvOptions) -> tuple[None, int] | None:
    """NULL, and where its field ends, if the raw null literal is the field that begins there."""
    if options.raw_null is None or not text.startswith(options.raw_null, at):
        return None
    end = at + len(options.raw_null)
    is_whole = end == len(text) or text[end] in "\r\n" or text.startswith(options.delimiter, end)
    return (None, end) if is_whole else None


def _field(text: str, at: int, delimiter: str, quote: str, escape: str) -> tuple[str, int]:
    """The field that begins there, and where it ends."""
    is_quoted = bool(quote) and text.startswith(quote, at)
    at += is_quoted
    parts: list[str] = []
    while at < len(text):
        each = text[at]
        if each == escape:
            if at + 1 == len(text):
                raise RowFailure("the body ends with an escape character")
            parts.append(_ESCAPED.get(text[at + 1], text[at + 1]))
            at += 2
        elif is_quoted and each == quote:
            if not text.startswith(quote, at + 1):
                return "".join(parts), at + 1
            parts.append(quote)
            at += 2
        elif not is_quoted and (each in "\r\n" or text.startswith(delimiter, at)):
            break
        else:
            parts.append(each)
            at += 1
    if is_quoted:
        raise RowFailure("a quote is missing: the body ends within a field")
    return "".join(parts), at


class CsvEncoder:
    """See `formats.base.Encoder`."""

    def __init__(self, fields: Fields, options: CsvOptions) -> None:
        self._options = options
        null = options.null or options.raw_null or ""
        self.constants: dict[str, Any] = {"csv_filled": filled, "csv_null": null}
        self._writers = [texts.writer(each.type) for each in fields]
        for i, (each, write) in enumerate(zip(fields, self._writers, strict=True)):
            self.constants[f"csv_{i}"] = self._field_writer(each.name, write, is_first=i == 0)

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        fields = [f"(csv_null if {name} is None else csv_{i}({name}))" for i, name in enumerate(names)]
        return f"csv_filled({self._options.delimiter!r}.join(({', '.join(fields)},)).encode())"

    def _field_writer(self, name: str, write: Callable[[Any], str] | None, *, is_first: bool) -> Callable[[Any], str]:
        """Returns what makes the field of a value that is not NULL."""
        quote, escape, null = self._options.quote, self._options.escape, self._options.null
        mark = MARK if is_first else ""
        special = {*self._options.delimiter, quote, escape, "\r", "\n", mark} - {""}
        if write is not None and not null and special.isdisjoint(_PLAIN):
            return write
        is_special = re.compile(f"[{''.join(map(re.escape, special))}]{'|^#' * is_first}").search

        def field(text: str) -> str:
            if is_special(text) is None:
                return text
            if quote:
                if escape:
                    text = text.replace(escape, escape + escape)
                return quote + text.replace(quote, quote + quote) + quote
            return self._escaped(text, name, mark)

        def of(value: Any) -> str:
            text: str = value if write is None else write(value)
            found = field(text)
            if (null and text == null) or found == self._options.raw_null:
                raise ValueFailure(f"column {name}: the text {text!r} is the null literal")
            return found

        return of

    def _escaped(self, text: str, name: str, mark: str) -> str:
        """`mark`: the byte order mark, in the first column."""
        delimiter, escape = self._options.delimiter, self._options.escape
        if not escape:
            if is_cut(text, delimiter) or "\r" in text or "\n" in text:
                raise ValueFailure(f"column {name}: {text!r:.50} has a delimiter or a line break, which nothing quotes")
            if mark and text.startswith((mark, "#") if self._options.has_comments else mark):
                raise ValueFailure(
                    f"column {name}: {text!r:.50} begins as a comment or a file does, and nothing quotes it"
                )
            return text
        codes = {"\r": "r", "\n": "n", **{each: each for each in (escape, *delimiter, "#", mark)}}
        return "".join(f"{escape}{codes[each]}" if each in codes else each for each in text)
