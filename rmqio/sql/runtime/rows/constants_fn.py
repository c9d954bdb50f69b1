"""Rows that a statement holds: VALUES, and SELECT without FROM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.expressions.places import placed
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.runtime.rows.failed_rows import FailedRows
from rmqio.sql.runtime.rows.outputs import outputs


class ConstantsFn(beam.DoFn):
    """Computes rows of constants, each by a fragment of its own, whose input has no columns."""

    def __init__(self, fragments: Sequence[Fragment], side: int) -> None:
        self._fragments = fragments
        self._side = side

    def process(self, element: bytes, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        for number, fragment in enumerate(self._fragments, 1):
            mapped = compiled(fragment)([()])
            if mapped.failed or mapped.nulls:
                failed = {at: placed(error, number, len(self._fragments)) for at, error in mapped.failed.items()}
                yield from FailedRows(fragment).outputs([()], failed, mapped.nulls)
            if mapped.values:
                yield from outputs(fragment.target, mapped.values, self._side, timestamp.micros)
