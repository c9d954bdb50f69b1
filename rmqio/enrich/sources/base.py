"""The interface of a source, and what sources share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rmqio.errors import LocalError

if TYPE_CHECKING:
    import pyarrow as pa


class Source(Protocol):
    """Rows as Arrow's batches. Picklable and hashable."""

    @property
    def shown(self) -> str:
        """Its name in messages, without credentials."""
        ...

    def identity(self) -> tuple[object, ...]:
        """Returns what distinguishes it from other sources."""
        ...

    def version(self) -> str | None:
        """Returns a text that changes with the rows; None: only reading them tells. Raises `LocalError`."""
        ...

    def rows(self) -> int | None:
        """Returns how many rows there are, if that is known before they are read."""
        ...

    def size(self) -> int:
        """Returns about how many bytes they have; 0: unknown."""
        ...

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows. `columns`: those that are needed; None: all. Raises `LocalError`."""
        ...


class Live(Protocol):
    """A table that keeps itself up to date."""

    def start(self) -> None:
        """Loads it. Raises `RmqioError`."""
        ...

    def stop(self) -> None:
        """Ends its threads. Idempotent."""
        ...

    def now(self) -> tuple[Any, float]:
        """Returns its rows, and when they were the source's (Unix s). Raises `RmqioError` if that has failed."""
        ...


@runtime_checkable
class LiveSource(Protocol):
    """A source that goes on: a `Source` whose rows are never read as a whole."""

    def live(self, wanted: Any) -> Live:
        """Returns the table of it. `wanted`: the `Wanted` with this source."""
        ...


def arrow_type(name: str, column: str) -> Any:
    """Returns the type of Arrow with a name, such as "int64" or "decimal128(10, 2)". Raises `LocalError`."""
    import re

    import pyarrow as pa

    text = name.strip().lower()
    found = re.fullmatch(r"decimal(?:128)?\(\s*(\d+)\s*,\s*(-?\d+)\s*\)", text)
    if found:
        return pa.decimal128(int(found[1]), int(found[2]))
    found = re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:,\s*(?:tz=)?([^\]]+))?\]", name.strip())
    if found:
        return pa.timestamp(found[1], found[2])
    simple = {"text": "string", "bytes": "binary", "integer": "int64", "boolean": "bool", "date": "date32"}
    try:
        return pa.type_for_alias(simple.get(text, text))
    except ValueError:
        from rmqio.enrich.table.names import nearest

        known = ["string", "binary", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                 "float", "double", "date32", "timestamp[us]", "decimal128(10, 2)"]  # fmt: skip
        raise LocalError(
            f"the type of {column} is {name!r}, which is not one of Arrow's{nearest(text, known)}"
        ) from None
