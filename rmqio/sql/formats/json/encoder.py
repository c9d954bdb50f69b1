"""JSON bodies: one object a message, as Flink's format `json` writes them.

Nothing is lost: a DECIMAL is a number with all its digits, NaN and Infinity are strings, BYTES are base64, keys of maps
are their text. Zeros at the end of a second's fraction are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from rmqio.sql import values
from rmqio.sql.formats import texts
from rmqio.sql.formats.base import Convert, Fields
from rmqio.sql.formats.json.decoder import DEFAULTS, JsonOptions
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure


class JsonEncoder:
    """See `formats.base.Encoder`."""

    def __init__(self, fields: Fields, options: JsonOptions = DEFAULTS) -> None:
        self._writers = [writer(each.type, options) for each in fields]
        self.constants: dict[str, Any] = {
            "json_row": _row_maker([each.name for each in fields], options),
            "json_encode": msgspec.json.Encoder(decimal_format="number").encode,
            **{f"json_{i}": each for i, each in enumerate(self._writers) if each is not None},
        }

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        written = [
            name if write is None else f"(None if {name} is None else json_{i}({name}))"
            for i, (name, write) in enumerate(zip(names, self._writers, strict=True))
        ]
        return f"json_encode(json_row({', '.join(written)}))"


def _row_maker(names: Sequence[str], options: JsonOptions) -> Callable[..., Any]:
    attributes = [f"c{position}" for position in range(len(names))]
    members: list[Any] = [(each, Any, None) for each in attributes]
    try:
        return msgspec.defstruct(
            "Out", members, rename=dict(zip(attributes, names, strict=True)), omit_defaults=options.leaves_nulls_out,
            gc=False,
        )  # fmt: skip
    except ValueError:  # a name with quotes, backslashes or control characters
        return lambda *row: _object(names, row, options)


def _object(names: Sequence[str], row: Sequence[Any], options: JsonOptions) -> dict[str, Any]:
    pairs = zip(names, row, strict=True)
    return {name: value for name, value in pairs if value is not None or not options.leaves_nulls_out}


def writer(kind: SqlType, options: JsonOptions) -> Convert | None:
    """Returns what makes a value of JSON of a SQL value; None: it is one."""
    match kind.kind:
        case "DOUBLE":
            return _finite
        case "FLOAT":
            return lambda number: _finite(texts.shortest(number))
        case "DECIMAL":
            return _plain
        case "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
            return texts.time_writer(kind, options.separator)
        case "ARRAY":
            each = writer(kind.elements[0], options)
            return None if each is None else lambda items: [None if item is None else each(item) for item in items]
        case "MAP":
            return _map(kind, options)
        case "ROW":
            writers = [writer(each, options) or _same for each in kind.elements]
            return lambda row: _object(
                kind.names,
                [None if value is None else write(value) for write, value in zip(writers, row, strict=True)],
                options,
            )
    return None


def _map(kind: SqlType, options: JsonOptions) -> Convert:
    write_key = texts.writer(kind.elements[0]) or _same
    write = writer(kind.elements[1], options) or _same

    def of(items: dict[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items.items():
            if key is None:
                if options.null_keys == "FAIL":
                    raise ValueFailure("a key of the map is NULL; see the option json.map-null-key.mode")
                if options.null_keys == "DROP":
                    continue
            name = options.null_key if key is None else write_key(key)
            found[name] = None if value is None else write(value)
        return found

    return of


def _plain(number: Decimal) -> Any:
    """The number as JSON, without an exponent."""
    return msgspec.Raw(format(number, "f").encode())


def _finite(number: float) -> Any:
    """JSON has no NaN: it is text, as Flink writes it."""
    return number if number - number == 0 else values.text_of_double(number)


def _same(value: Any) -> Any:
    return value
