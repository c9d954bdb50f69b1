"""The C extension that decodes many bodies in one call, if it was built and is not disabled (docs/install.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from rmqio.loading import extension


class Values(Protocol):
    """Decodes bodies to Python's values."""

    def one(self, body: bytes, offset: int, /) -> Any:
        """The value that fills the body from an offset on. Raises LookupError: Python has to decode it."""
        ...

    def many(self, bodies: list[bytes], offset: int, /) -> tuple[list[Any], list[int]]:
        """The values in order, and the positions of the bodies that Python has to decode."""
        ...


Column = tuple[int, int, bytes | None, bytes | None, bytes | None]
"""The length, the number of nulls, and the buffers: validity, values or offsets, data."""


class Columns(Protocol):
    """Decodes bodies to the buffers of Arrow's arrays, without the GIL."""

    def decode(self, bodies: tuple[bytes, ...], offset: int, /) -> tuple[list[Column], list[int]]:
        """A column for each node, and the positions of the bodies that Python has to decode."""
        ...


_module: Final = extension("rmqio.serde.avro._bulk")
new_values: Final[Callable[[tuple[Any, ...], int], Values] | None] = getattr(_module, "Values", None)
"""Takes nodes (kind, parts, argument, places) and the index of the root."""
new_columns: Final[Callable[[tuple[Any, ...]], Columns] | None] = getattr(_module, "Columns", None)
"""Takes nodes (kind, parts, null branch, size, digits, symbols), the parts before the whole."""
MAX_NODES: Final = 2_000
"""Limit for a schema whose named types are used in many places."""
