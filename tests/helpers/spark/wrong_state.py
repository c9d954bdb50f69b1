"""DoFns that write values which do not fit the coders of their state, and what the error says of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, ReadModifyWriteStateSpec

VALUE = ReadModifyWriteStateSpec("latest", VarIntCoder())
BAG = BagStateSpec("everything", VarIntCoder())
SUM = CombiningValueStateSpec("total", VarIntCoder(), lambda values: "".join(map(str, values)))


class WritesValue(beam.DoFn):
    def process(self, pair: Any, state: Any = beam.DoFn.StateParam(VALUE)) -> Iterator[Any]:
        state.write("text")
        yield pair


class AddsToBag(beam.DoFn):
    def process(self, pair: Any, state: Any = beam.DoFn.StateParam(BAG)) -> Iterator[Any]:
        state.add(1)
        state.add("text")
        yield pair


class AddsToSum(beam.DoFn):
    def process(self, pair: Any, state: Any = beam.DoFn.StateParam(SUM)) -> Iterator[Any]:
        state.add("text")
        yield pair


CASES: Final[list[tuple[type[beam.DoFn], str, str]]] = [
    (WritesValue, "latest", "'text' (str)"),
    (AddsToBag, "everything", "'text' (str)"),
    (AddsToSum, "total", "["),  # an accumulator
]
"""The DoFn, its state, and the value that is shown."""


def require_named(text: str, state: str, value: str) -> None:
    """Fails unless the error names the state, the value, and the line that declares the state."""
    assert f"state '{state}': its coder VarIntCoder cannot encode {value}" in text
    assert f'StateSpec("{state}", VarIntCoder()' in text.rpartition(f"declared in {__file__}, line ")[2]
