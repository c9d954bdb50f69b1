"""The interface of a format of bodies, and the first bytes of bodies in Confluent's formats."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqio.errors import LocalError
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.plan import Field
from rmqio.sql.types import SqlType, has_required_parts
from rmqio.sql.values import ValueFailure, shown_value

if TYPE_CHECKING:
    from rmqio.serde.registry import RestRegistry

Convert = Callable[[Any], Any]
MARK: Final = "\ufeff"
"""The byte order mark, which some programs write before UTF-8."""
CONVERSIONS: Final = (ValueFailure, ValueError, ArithmeticError, TypeError, RecursionError)
"""Errors of conversions: a value does not fit."""
_LONGEST: Final = 50


class RowFailure(ValueFailure):
    """A body that cannot be decoded, or a column that does not fit. `column` is its name, if it is known."""

    def __init__(self, reason: str, column: str = "") -> None:
        super().__init__(f"column {column}: {reason}" if column else reason)
        self.column = column


class Decoder(Protocol):
    """Decodes bodies to some columns of a table."""

    @property
    def columns(self) -> Sequence[str]:
        """Python's expressions for the columns of `row`, what `fast` returns; `{}` is the row."""

    @property
    def converters(self) -> Sequence[Convert | None]:
        """For each column, what makes its SQL value of it, which is not None; None: it is that value."""

    def fast(self, body: bytes) -> Any:
        """Decodes a usual body. Raises anything for another one."""

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""


class Encoder(Protocol):
    """Encodes SQL values to a body."""

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""

    constants: dict[str, Any]


Fields = Sequence[Field]


def bounded(text: str) -> str:
    """Returns the text for a message, without quotes, of a bounded length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def reason_of(error: Exception) -> str:
    """Returns why a value does not fit, for a message."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__


def required(kind: SqlType, convert: Convert | None) -> Convert | None:
    """Returns the converter, which fails for a NOT NULL column if it makes NULL."""
    if kind.is_nullable or convert is None:
        return convert

    def of(given: Any) -> Any:
        found = convert(given)
        if found is None:
            raise ValueFailure(f"it is NOT NULL, but {bounded(str(given))} does not fit into {kind.text}")
        return found

    return of


def require_parts(kind: SqlType, column: str, given: Any) -> Any:
    """Returns the SQL value. Raises `RowFailure` for NULL in a part of it that is NOT NULL."""
    if given is None or not kind.elements:
        return given
    match kind.kind:
        case "MAP":
            parts: Iterable[Iterable[Any]] = (given, given.values())
        case "ROW":
            parts = zip(given)
        case _:
            parts = (given,)
    for part, values in zip(kind.elements, parts, strict=True):
        for each in values:
            if each is None and not part.is_nullable:
                raise RowFailure(f"a part of {kind.text} is {part.text} NOT NULL, but is NULL", column)
            require_parts(part, column, each)
    return given


class RequiredParts:
    """A decoder that fails for NULL in parts of columns that are NOT NULL. See `Decoder`."""

    def __init__(self, fields: Fields, decoder: Decoder) -> None:
        self._decoder, self.fast, self.columns = decoder, decoder.fast, decoder.columns
        self._checks = [
            (i, partial(require_parts, each.type, each.name))
            for i, each in enumerate(fields)
            if has_required_parts(each.type)
        ]
        self.converters = list(decoder.converters)
        for i, check in self._checks:
            self.converters[i] = _then(self.converters[i], check)

    def exact(self, body: Any) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        row = self._decoder.exact(body)
        for i, check in self._checks:
            check(row[i])
        return row


def _then(convert: Convert | None, check: Convert) -> Convert:
    return check if convert is None else lambda given: check(convert(given))


def whole(number: int, bits: int) -> int:
    """Returns the number. Raises `ValueFailure`, with some of its digits, if it needs more bits."""
    limit = 1 << (bits - 1)
    if not -limit <= number < limit:
        raise ValueFailure(f"{shown_value(number)} is out of range of an integer of {bits} bits")
    return number


def utf8(body: bytes) -> str:
    """Returns the body as text. Raises `RowFailure` if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RowFailure(f"the body is not UTF-8 text: {error.reason} at byte {error.start}") from None


def is_cut(text: str, delimiter: str) -> bool:
    """Returns whether readers find the delimiter before the end of the text, which can be the delimiter's beginning."""
    return (text + delimiter).find(delimiter) < len(text)


def filled(body: bytes) -> bytes:
    """Returns the body. Raises `ValueFailure` if it is empty."""
    if not body:
        raise ValueFailure("the body would be empty, and RocketMQ accepts no message without a body")
    return body


def row_of_texts(
    fields: Fields, readers: Sequence[Convert | None], found: Mapping[str, str | None], missing: str, wrong: str
) -> tuple[Any, ...]:
    """Returns the SQL values of texts by the names of columns. Raises `RowFailure`.

    Args:
      readers: what makes a value of a text; None: it is that value.
      missing: what is said of a text that a NOT NULL column lacks.
      wrong: what is said before a text that means NULL there.
    """
    row = []
    for each, read in zip(fields, readers, strict=True):
        text = found.get(each.name)
        try:
            made = text if read is None or text is None else read(text)
        except CONVERSIONS as error:
            raise RowFailure(reason_of(error), each.name) from None
        if made is None and not each.type.is_nullable:
            problem = missing if text is None else f"{wrong} {bounded(text)!r}"
            raise RowFailure(f"it is NOT NULL, but {problem}", each.name)
        row.append(made)
    return tuple(row)


# The first bytes of bodies in Confluent's formats: 00, the schema's id (4 bytes, big endian).

_HEAD: Final = struct.Struct(">bI")
SIZE: Final = _HEAD.size
TIMES: Final[Mapping[str, Any]] = MappingProxyType({"timeout_s": 5.0, "retries": 2})
"""How long a job waits for a registry: three times 5 s, and not 40 s, since the runner tries again as well."""


def head(schema_id: int) -> bytes:
    """Returns the bytes before the value."""
    return _HEAD.pack(0, schema_id)


def check_head(body: bytes, what: str) -> None:
    """Raises `RowFailure` unless the body begins as in Confluent's formats."""
    if len(body) < SIZE or body[0]:
        begins = f"it begins with {body[:1].hex()}, and not 00" if body[:1] != b"\0" else "it is too short"
        raise RowFailure(f"the body is not {what} of a registry: {begins}")


def registry_of(options: FormatOptions, format_name: str) -> RestRegistry:
    """Returns the registry of a table. Raises `Refusal`."""
    from rmqio.serde.registry import RestRegistry

    if not options.has("registry_url"):
        raise Refusal(f"the format {format_name} needs the option '{format_name}.url'", None)
    try:
        return RestRegistry(options.text("registry_url", "").strip(), **TIMES)
    except LocalError as error:
        raise options.refusal("registry_url", f"cannot be used: {error}") from None


def subject_of(topic: str | None, options: FormatOptions) -> str:
    """Returns the subject: that of the values of the topic, unless the table says another one."""
    return options.text("registry_subject", "").strip() or f"{topic}-value"
