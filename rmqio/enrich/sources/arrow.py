"""A table of Arrow, which travels with the pipeline."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, repr=False)
class ArrowTable:
    """See `Source`. `data`: the rows as Arrow's stream."""

    data: bytes
    count: int

    @classmethod
    def of(cls, table: pa.Table) -> ArrowTable:
        """Returns the source of a table."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return cls(sink.getvalue().to_pybytes(), table.num_rows)

    def __repr__(self) -> str:
        return f"ArrowTable({self.count:,} rows)"

    @property
    def shown(self) -> str:
        return f"from_arrow ({self.count:,} rows)"

    def identity(self) -> tuple[object, ...]:
        return "arrow", self.version()

    def version(self) -> str | None:
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()

    def rows(self) -> int | None:
        return self.count

    def size(self) -> int:
        return len(self.data)

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with pa.ipc.open_stream(self.data) as reader:
            yield pa.RecordBatch.from_arrays([pa.array([], each.type) for each in reader.schema], schema=reader.schema)
            yield from reader
