"""The input of the second phase of a salted combine: values, and accumulators of the first phase. And its coder."""

from __future__ import annotations

from typing import Any

from apache_beam.coders import Coder, registry
from apache_beam.typehints.typehints import TupleConstraint

from rmqio.errors import WireError

Part = tuple[bool, Any]
"""Whether it is an accumulator, and the accumulator or the value."""


class PartConstraint(TupleConstraint):
    """Beam's type of a `Part`, which knows the coders of both."""

    def __init__(self, value_coder: Coder, accumulator_coder: Coder) -> None:
        super().__init__((bool, Any))
        self.coders = (value_coder, accumulator_coder)


class PartCoder(Coder):
    """A byte that tells which it is, and the bytes of its coder."""

    def __init__(self, value_coder: Coder, accumulator_coder: Coder) -> None:
        self.coders = (value_coder, accumulator_coder)

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> PartCoder:
        return cls(*typehint.coders)

    def to_type_hint(self) -> Any:
        return PartConstraint(*self.coders)

    def encode(self, value: Part) -> bytes:
        is_accumulator, content = value
        encoded: bytes = self.coders[is_accumulator].encode(content)
        return (b"\x01" if is_accumulator else b"\x00") + encoded

    def decode(self, encoded: bytes) -> Part:
        if encoded[:1] not in (b"\x00", b"\x01"):
            raise WireError(f"these {len(encoded)} bytes are no part of a salted combine")
        is_accumulator = encoded[0] == 1
        return is_accumulator, self.coders[is_accumulator].decode(encoded[1:])

    def is_deterministic(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.coders == other.coders

    def __hash__(self) -> int:
        return hash((type(self), self.coders))


registry.register_coder(PartConstraint, PartCoder)
