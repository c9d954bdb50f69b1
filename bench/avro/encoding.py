"""Typed rows to Avro in bulk by a columnar writer (Polars), beside our serializer: microseconds of CPU per row.

python -m bench.avro.encoding [--values 20000] [--repeats 7]        # needs Polars: pip install polars

Polars writes a block of a file, in which the bodies are behind one another. Its steps are measured alone: to make a
frame of rows, to write it, and to find where each body ends, for which the block must be decoded (fastavro skips
through it). Its schema is its own: every field becomes a union with null, so the bodies are not those of our schema.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro

from bench.avro.__main__ import FLAT, Flat, flat
from bench.common.report import aligned, machine_text
from bench.common.tally import BenchError
from rmqio.serde.avro import AvroSerializer

_HEAD: Final = ("step", "us of CPU a row")
_BATCH: Final = 512


def cost(step: Callable[[Any], Any], batches: Sequence[Any], rows: int, repeats: int) -> str:
    """Microseconds of CPU per row, of all threads: median, minimum and maximum."""
    found = []
    for _ in range(repeats + 1):
        gc.collect()
        began = time.process_time()
        for batch in batches:
            step(batch)
        found.append(1e6 * (time.process_time() - began) / rows)
    found = sorted(found[1:])
    return f"{statistics.median(found):.2f} ({found[0]:.2f}..{found[-1]:.2f})"


def main() -> None:
    try:
        polars: Any = importlib.import_module("polars")
    except ImportError as error:
        raise BenchError("python -m bench.avro.encoding needs Polars: pip install polars") from error
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    rows = [Flat(**flat(number)) for number in range(given.values)]
    batches = [rows[at : at + _BATCH] for at in range(0, len(rows), _BATCH)]
    kinds = {
        "id": polars.Int64,
        "name": polars.String,
        "share": polars.Float64,
        "state": polars.String,
        "is_new": polars.Boolean,
        "number": polars.Int32,
    }
    serializer = AvroSerializer(FLAT)

    def by_us(batch: Sequence[Flat]) -> list[bytes]:
        return [message.body for message in map(serializer, batch)]

    def framed(batch: Sequence[Flat]) -> Any:
        return polars.DataFrame(batch, schema=kinds, orient="row")

    def by_columns(batch: Sequence[Flat]) -> Any:
        columns = zip(*batch, strict=True)
        series = (polars.Series(name, each, kinds[name]) for name, each in zip(kinds, columns, strict=True))
        return polars.DataFrame(list(series))

    def written(frame: Any) -> bytes:
        stream = BytesIO()
        frame.write_avro(stream, compression="uncompressed")
        return stream.getvalue()

    frames = [by_columns(batch) for batch in batches]
    files = [written(frame) for frame in frames]
    schema: Any = fastavro.reader(BytesIO(files[0])).writer_schema

    def ends(file: bytes) -> list[int]:
        """The ends of the bodies in the content of the block."""
        (block,) = fastavro.block_reader(BytesIO(file))
        stream, found = block.bytes_, list[int]()  # type: ignore[attr-defined]
        for _ in range(block.num_records):
            fastavro.schemaless_reader(stream, schema, None)
            found.append(stream.tell())
        return found

    lines = [
        [step, cost(function, given_batches, len(rows), given.repeats)]
        for step, function, given_batches in (
            ("our serializer, row by row, with its check", by_us, batches),
            ("Polars: a frame of rows", framed, batches),
            ("Polars: a frame of the columns of rows", by_columns, batches),
            ("Polars: the block of a frame", written, frames),
            ("fastavro: where the bodies of the block end", ends, files),
        )
    ]
    print(machine_text(), end="\n\n")
    print(aligned([_HEAD, *lines], {0}))
    print(f"\nPolars' schema: {schema['fields']}")


if __name__ == "__main__":
    main()
