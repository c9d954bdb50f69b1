"""Bodies of tables with `'on-error' = 'null'`: a column that does not fit is NULL, and the others stay."""

from __future__ import annotations

from typing import Any

from rmqio.sql.catalog.tables import Table
from rmqio.sql.formats import decoder_of
from rmqio.sql.formats.base import Decoder, Fields, RowFailure


class LenientDecoder:
    """Decodes each column by itself, if the decoder of all of them fails at one.

    Args:
      decoder: decodes all of them.
    """

    def __init__(self, table: Table, fields: Fields, decoder: Decoder) -> None:
        self._fields, self._decoder = fields, decoder
        self._single = [decoder_of(table, [each]) for each in fields]

    def exact(self, body: bytes, nulls: list[Exception]) -> tuple[Any, ...]:
        """Returns the SQL values, and adds the errors of columns that are NULL instead.

        Raises `RowFailure` if the body is none of the format, or if a NOT NULL column does not fit.
        """
        try:
            return self._decoder.exact(body)
        except RowFailure as error:
            if not error.column:
                raise
        row: list[Any] = []
        for field, decoder in zip(self._fields, self._single, strict=True):
            try:
                row += decoder.exact(body)
            except RowFailure as error:
                if not error.column or not field.type.is_nullable:
                    raise
                row.append(None)
                nulls.append(error)
        return tuple(row)
