"""Bodies of an older schema than the reader's, beside bare fastavro with both schemas: values per second, and ratio.

python -m bench.avro.evolved [--values 20000] [--repeats 7]

The reader has a field more than the writer, one less, another order, and a wider number. Batches have 512 bodies. Rates
are per second of CPU.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro

from bench.avro.__main__ import FLAT, NESTED, batch_rate, compare, flat, nested, plain, record_of, timed
from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio.serde.avro import AvroDeserializer
from rmqio.serde.avro.arrow import AvroToArrow

_HEAD: Final = ("values", "as", "ours, per s of CPU", "fastavro", "ratio")


class Newer(NamedTuple):
    number: int
    id: int
    name: str
    note: str | None
    share: float | None
    state: str


class NewerNested(NamedTuple):
    id: int
    lines: list[Any]
    note: str | None
    amount: Any


def newer(schema: dict[str, Any], names: tuple[str, ...], wider: str = "") -> dict[str, Any]:
    """A reader's schema with these fields of another one, and a note."""
    known = {field["name"]: field for field in json.loads(json.dumps(schema))["fields"]}
    known["note"] = {"name": "note", "type": ["null", "string"], "default": None}
    if wider:
        known[wider]["type"] = "long"
    fields = [known[name] for name in names]
    if "lines" in names:  # which is defined by a field that is left out
        fields[names.index("lines")]["type"] = {"type": "array", "items": known["first"]["type"]}
    return {**schema, "fields": fields}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.avro.evolved", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    lines = []
    for name, writer, make, cls, wider in (
        ("flat", FLAT, flat, Newer, "number"),
        ("nested", NESTED, nested, NewerNested, ""),
    ):
        reader = newer(writer, cls._fields, wider)
        written, wanted = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        bodies = []
        for number in range(given.values):
            stream = BytesIO()
            fastavro.schemaless_writer(stream, written, make(number))
            bodies.append(stream.getvalue())
        read = functools.partial(_read, written, wanted)
        records, expected = [*map(record_of, bodies)], [plain(read(body)) for body in bodies]
        other = functools.partial(timed, read, bodies, time.thread_time)
        for kind, ours in (
            ("dict", AvroDeserializer(reader, writer).many),
            ("NamedTuple", AvroDeserializer(reader, writer, to=cls).many),
            ("Arrow batch", AvroToArrow(reader, writer)),
        ):
            found = ours(records)
            rows = found[0] if isinstance(found, tuple) else found.to_pylist()
            if [plain(row._asdict() if hasattr(row, "_asdict") else row) for row in rows] != expected:
                raise UnequalWork(f"{name} as {kind}: the values are not those of fastavro")
            lines.append([name, kind, *compare(batch_rate(ours, records, time.thread_time), other, given.repeats)])
    print(machine_text(), end="\n\n")
    print(aligned([_HEAD, *lines], {0, 1}))


def _read(written: Any, wanted: Any, body: bytes) -> Any:
    return fastavro.schemaless_reader(BytesIO(body), written, wanted)


if __name__ == "__main__":
    main()
