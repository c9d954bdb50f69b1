"""JSON bodies: one object a message, as Flink's format `json` reads them.

msgspec decodes the columns that are needed, checked by type. A body that it refuses is decoded again with the standard
library and converted by Flink's rules: numbers in quotes are numbers, anything for a STRING is its text, a missing
field is NULL. Columns that often are of another type than usual are then decoded without a check by msgspec, too.

Names of fields are compared with case; of several fields with one name the last counts. Values of fields that are not
needed are not converted, and msgspec does not check that they are UTF-8. NULL for a NOT NULL column is a failure.

Other than in Flink, only true and false, and the text that CAST accepts, are BOOLEAN (Flink: anything else is false);
half of a surrogate pair fails (Flink: `?`); a body is one object, not an array of them; text after it fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from rmqio.sql.formats.base import CONVERSIONS, Convert, Fields, RowFailure, bounded, reason_of
from rmqio.sql.formats.json import structs as json_structs
from rmqio.sql.formats.json.structs import Part
from rmqio.sql.formats.json.values import Literal, converter, kind_of
from rmqio.sql.formats.options import FormatOptions
from rmqio.sql.types import BITS

_ENOUGH: Final = 8
"""So many values of another type than usual make a column one that is decoded without a check."""


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """The options of the format.

    Attributes:
      separator: between the date and the time of a timestamp that is written. Both are read.
      fails_if_missing: whether a missing field is a failure, and not NULL.
      leaves_nulls_out: whether fields with NULL are not written.
      null_keys: what becomes of NULL as a key of a map that is written: FAIL, DROP or LITERAL.
      null_key: the name of such a key.
    """

    separator: str = " "
    fails_if_missing: bool = False
    leaves_nulls_out: bool = False
    null_keys: str = "FAIL"
    null_key: str = "null"

    @staticmethod
    def of(options: FormatOptions) -> JsonOptions:
        """Returns the options of a table. Raises `Refusal`."""
        options.is_true("json_plain")  # a DECIMAL is always a plain number
        return JsonOptions(
            "T" if options.one_of("json_times", ("SQL", "ISO-8601"), "SQL") == "ISO-8601" else " ",
            options.is_true("json_fail_on_missing"),
            options.is_true("json_no_nulls"),
            options.one_of("json_null_keys", ("FAIL", "DROP", "LITERAL"), "FAIL"),
            options.text("json_null_key", "null"),
        )


DEFAULTS: Final = JsonOptions()


class JsonDecoder:
    """See `formats.base.Decoder`."""

    def __init__(self, fields: Fields, options: JsonOptions = DEFAULTS) -> None:
        self._fields, self._fails_if_missing = fields, options.fails_if_missing
        self._exact = [converter(each.type, options.fails_if_missing) for each in fields]
        self._usual = [_usual_types(each.type.kind) for each in fields]
        self._unusual = [0] * len(fields)
        # For columns that msgspec does not check: the attribute, the type that needs no conversion, the conversion.
        self._widened: list[tuple[str, type | None, Convert]] = [
            (f"c{position}", Literal, _require)
            for position, each in enumerate(fields)
            if each.type.kind == "DECIMAL" and not each.type.is_nullable
        ]
        self.columns = [f"{{}}.c{position}" for position in range(len(fields))]
        try:
            self._parts = [json_structs.part(each.type, options.fails_if_missing) for each in fields]
            self._decode = json_structs.row_decoder(fields, self._parts, options.fails_if_missing)
        except ValueError:  # a name with quotes, backslashes or control characters
            self._parts = [Part(None, None) for _ in fields]
            self._decode = _refuse
        self.converters = [each.convert for each in self._parts]
        self._run = self._widely if self._widened else self._decode

    def fast(self, body: bytes) -> Any:
        """Decodes a usual body. Raises anything for another one."""
        return self._run(body)

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        found = _parsed(body)
        row = []
        for position, each in enumerate(self._fields):
            given = found.get(each.name)
            try:
                value = None if given is None else self._exact[position](given)
            except CONVERSIONS as error:
                raise RowFailure(reason_of(error), each.name) from None
            if value is None:
                self._check_null(position, given, is_missing=each.name not in found)
            elif (usual := self._usual[position]) and type(given) not in usual:
                self._note(position)
            row.append(value)
        return tuple(row)

    def _check_null(self, position: int, given: Any, is_missing: bool) -> None:
        name, kind = self._fields[position].name, self._fields[position].type
        if is_missing and self._fails_if_missing:
            raise RowFailure("the field is missing", name)
        if kind.is_nullable:
            return
        if given is not None:
            raise RowFailure(f"it is NOT NULL, but {bounded(str(given))} does not fit into {kind.text}", name)
        raise RowFailure(f"it is NOT NULL, but the field is {'missing' if is_missing else 'null'}", name)

    def _note(self, position: int) -> None:
        """Counts a value of another type than usual, and after some of them decodes the column without a check."""
        self._unusual[position] += 1
        if self._unusual[position] != _ENOUGH or self._decode is _refuse:
            return
        kind, convert = self._fields[position].type, self._exact[position]
        usual = {"VARCHAR": str, "BOOLEAN": bool}.get(kind.kind)
        make = _or_null(convert) if kind.is_nullable else lambda value: convert(_require(value))
        self._widened.append((f"c{position}", usual, make))
        self._parts[position] = Part(Any, None)
        self._decode = json_structs.row_decoder(self._fields, self._parts, self._fails_if_missing)
        self._run = self._widely

    def _widely(self, body: bytes) -> Any:
        row = self._decode(body)
        for name, usual, convert in self._widened:
            value = getattr(row, name)
            if type(value) is not usual:
                setattr(row, name, convert(value))
        return row


def _usual_types(kind: str) -> tuple[type, ...]:
    """The types of values for which the checked struct is enough; none: it is the only one."""
    if kind in BITS:
        return (int,)
    return {"VARCHAR": (str,), "BOOLEAN": (bool,), "DOUBLE": (int, Literal), "FLOAT": (int, Literal)}.get(kind, ())


def _require(value: Any) -> Any:
    if value is None:
        raise ValueError
    return value


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _refuse(body: bytes) -> Any:
    raise ValueError


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode(json.detect_encoding(body))
        found = _loaded(text)
    except (ValueError, RecursionError) as error:
        raise RowFailure(f"the body is not JSON: {reason_of(error)}") from None
    if type(found) is not dict:
        raise RowFailure(f"the body is not a JSON object, but {kind_of(found)}")
    return found


def _loaded(text: str) -> Any:
    how: dict[str, Any] = {"strict": False, "parse_float": Literal, "parse_constant": _refuse_constant}
    try:
        return json.loads(text, **how)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts, which may not be needed
        return json.loads(text, **how, parse_int=_whole)


def _whole(text: str) -> int | Literal:
    try:
        return int(text)
    except ValueError:
        return Literal(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")
