"""Readers of many Avro bodies, each in a process of its own: microseconds per value, and memory.

python -m bench.avro.readers [--values 100000] [--repeats 5]

Flat values of bench.avro in batches of 512 become columns (fastavro: dicts). Readers of files get the bodies behind one
another, as the content of a file's block. The import is what the resident set grows by when the reader is imported and
used once, beside an empty Python; decoding, what its peak grows by over all batches. A reader that is not installed is
left out: pip install polars datafusion pyruhvro.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import fastavro

from bench.common.report import aligned, machine_text
from bench.common.rss import rss_mb
from bench.common.tally import BenchError
from rmqio import Message  # noqa: F401 - what every program imports, and so no part of a reader

_BATCH: Final = 512
_HEAD: Final = ("reader", "us a value", "import, MB", "decoding, MB")
_FIELDS: Final = {
    "id": "long",
    "name": "string",
    "share": ["null", "double"],
    "state": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]},
    "is_new": "boolean",
    "number": "int",
}
SCHEMA: Final = {
    "type": "record",
    "name": "Flat",
    "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()],
}
Decode = Callable[[Sequence[bytes]], int]


def _file_of(bodies: Sequence[bytes]) -> bytes:
    """A file with these bodies: an empty one's header, and one block."""
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, [])
    header = stream.getvalue()
    content = b"".join(bodies)
    return header + _long(len(bodies)) + _long(len(content)) + content + header[-16:]


def _long(value: int) -> bytes:
    value <<= 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def by_us() -> Decode:
    from rmqio.serde.avro.arrow import arrow_type
    from rmqio.serde.avro.bulk_columns import columns_of
    from rmqio.serde.avro.schema import schema_of

    schema = schema_of(SCHEMA, None)
    columns = columns_of(schema, arrow_type(schema))
    if columns is None:
        raise ImportError("the C extension is not built")
    return lambda bodies: len(columns.decode(bodies, 0)[0])


def by_polars() -> Decode:
    polars: Any = importlib.import_module("polars")
    return lambda bodies: int(polars.read_avro(io.BytesIO(_file_of(bodies))).height)


def by_datafusion() -> Decode:
    datafusion: Any = importlib.import_module("datafusion")
    folder = Path(tempfile.mkdtemp(prefix="rmqio-bench-"))

    def decode(bodies: Sequence[bytes]) -> int:
        path = folder / "part.avro"
        path.write_bytes(_file_of(bodies))
        return sum(batch.num_rows for batch in datafusion.SessionContext().read_avro(str(path)).collect())

    return decode


def by_pyruhvro() -> Decode:
    pyruhvro: Any = importlib.import_module("pyruhvro")
    schema = json.dumps(SCHEMA)
    return lambda bodies: int(pyruhvro.deserialize_array(list(bodies), schema).num_rows)


def by_fastavro() -> Decode:
    parsed = fastavro.parse_schema(SCHEMA)
    return lambda bodies: len([fastavro.schemaless_reader(io.BytesIO(body), parsed, None) for body in bodies])


READERS: Final[dict[str, Callable[[], Decode]]] = {
    "`_bulk`, `Columns`": by_us,
    "Polars": by_polars,
    "DataFusion": by_datafusion,
    "pyruhvro": by_pyruhvro,
    "fastavro": by_fastavro,
}


def measure(reader: str, path: str, repeats: int) -> dict[str, Any]:
    """Runs in a process of its own."""
    bodies = [bytes.fromhex(line) for line in Path(path).read_text().split()]
    batches = [bodies[at : at + _BATCH] for at in range(0, len(bodies), _BATCH)]
    before = rss_mb()
    try:
        decode = READERS[reader]()
    except ImportError:
        return {}
    decode(batches[0])
    imported, costs = rss_mb(), []
    for _ in range(repeats):
        began = time.process_time()
        if sum(map(decode, batches)) != len(bodies):
            raise BenchError(f"{reader} has not decoded all values")
        costs.append(1e6 * (time.process_time() - began) / len(bodies))
    peak = int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024 / 1e6
    return {"us": costs, "import": imported - before, "decoding": peak - imported}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.avro.readers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        print(json.dumps(measure(given.one[0], given.one[1], given.repeats)))
        return
    from bench.avro.__main__ import flat

    parsed, lines = fastavro.parse_schema(SCHEMA), []
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder:
        path = Path(folder, "bodies")
        with path.open("w") as file:
            for number in range(given.values):
                stream = io.BytesIO()
                fastavro.schemaless_writer(stream, parsed, flat(number))
                print(stream.getvalue().hex(), file=file)
        for reader in READERS:
            command = [sys.executable, "-m", "bench.avro.readers", f"--repeats={given.repeats}"]
            done = subprocess.run([*command, "--one", reader, str(path)], capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            if found:
                us = found["us"]
                cells = [f"{statistics.median(us):.2f} ({min(us):.2f}..{max(us):.2f})"]
                lines.append([reader, *cells, f"{found['import']:.0f}", f"{found['decoding']:.1f}"])
    print(machine_text(), end="\n\n")
    print(aligned([_HEAD, *lines], {0}))


if __name__ == "__main__":
    main()
