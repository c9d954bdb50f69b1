"""Our Avro serializers beside bare fastavro and beside Java's Avro, on the same values: values per second, and ratio.

python -m bench.avro [--values 20000] [--repeats 7] [--no-java]

fastavro's side is what a user would write by hand: `schemaless_reader` of a `BytesIO`, `schemaless_writer` into one and
`getvalue`, with a schema that is already parsed. It does not check its values; ours does. Java's side uses
GenericRecords, has no target, and needs a JDK.
"""

from __future__ import annotations

import argparse
import decimal
import functools
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro

from bench.avro.java import LOCK, JavaAvro
from bench.common.jvm import Jdk, find_jdk
from bench.common.report import aligned, machine_text
from bench.common.tally import BenchError, UnequalWork
from rmqio.model import Record
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.serde.avro.arrow import AvroToArrow

Step = Callable[[Any], Any]
_HEAD: Final = ("values", "as", "step", "ours/s", "fastavro/s", "ratio", "target")
_JAVA_HEAD: Final = ("values", "as", "step", "ours/s", "Java/s", "ratio")
_WARM_UP_S: Final = 5.0
_TO_DICTS: Final = 0.8
_TYPED: Final = 0.65
_TO_ARROW: Final = {"flat": "8", "nested": "4"}
_BATCH: Final = 512


class Flat(NamedTuple):
    id: int
    name: str
    share: float | None
    state: str
    is_new: bool
    number: int


@dataclass
class FlatData:
    id: int
    name: str
    share: float | None
    state: str
    is_new: bool
    number: int


class Line(NamedTuple):
    sku: str
    quantity: int


class Nested(NamedTuple):
    id: int
    amount: decimal.Decimal
    first: Line
    lines: list[Line]
    tags: dict[str, str]


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


FLAT: Final = _record(
    "Flat",
    id="long",
    name="string",
    share=["null", "double"],
    state={"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]},
    is_new="boolean",
    number="int",
)
NESTED: Final = _record(
    "Nested",
    id="long",
    amount={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    first=_record("Line", sku="string", quantity="int"),
    lines={"type": "array", "items": "Line"},
    tags={"type": "map", "values": "string"},
)


def flat(n: int) -> dict[str, Any]:
    share = None if n % 5 == 0 else n / 7
    return {"id": n, "name": f"customer {n}", "share": share, "state": "PAID", "is_new": n % 2 == 0, "number": n % 99}


def nested(n: int) -> dict[str, Any]:
    lines = [{"sku": f"sku-{each}", "quantity": each} for each in range(4)]
    tags = {"region": "north", "channel": "web"}
    return {"id": n, "amount": decimal.Decimal(n) / 100, "first": lines[0], "lines": lines, "tags": tags}


def timed(step: Step, values: Sequence[Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Values a second; by `time.thread_time`, a second of CPU, which other work on the machine changes less."""
    gc.collect()
    began = clock()
    for each in values:
        step(each)
    return len(values) / (clock() - began)


def compare(ours: Callable[[], float], other: Callable[[], float], repeats: int, digits: int = 2) -> list[str]:
    """Rates and their ratio; the sides take turns."""
    pairs = []
    for number in range(repeats + 1):
        found = [side() for side in ((ours, other) if number % 2 else (other, ours))]
        pairs.append(found if number % 2 else found[::-1])
    rates = list(zip(*pairs[1:], strict=True))  # the first is to warm up
    ratios = [one / another for one, another in pairs[1:]]
    mine, others = (statistics.median(rate) for rate in rates)
    ratio, least, most = (f"{each:.{digits}f}" for each in (mine / others, min(ratios), max(ratios)))
    return [f"{mine:,.0f}", f"{others:,.0f}", f"{ratio} ({least}..{most})"]


def record_of(body: bytes) -> Record:
    return Record("orders", "broker-a", 3, 42, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def lines_of(name: str, schema: Any, values: list[Any], targets: Sequence[Any], repeats: int) -> list[list[str]]:
    """Returns the lines of one schema, for each kind of element."""
    parsed = fastavro.parse_schema(schema)

    def write(value: Any) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        return stream.getvalue()

    def read(body: bytes) -> Any:
        return fastavro.schemaless_reader(BytesIO(body), parsed, None)

    bodies = [write(each) for each in values]
    found = []
    for target in targets:
        serializer, deserializer = AvroSerializer(schema), AvroDeserializer(schema, to=target)
        records = [record_of(body) for body in bodies]
        elements = [deserializer(record) for record in records]
        if [serializer(each).body for each in elements] != bodies or (target is dict and elements != values):
            raise UnequalWork(f"{name}: what is written of {target} is not what fastavro writes")
        kind = "beam.Row" if target == "row" else "dict" if target is dict else target.__mro__[1].__name__
        kind = "NamedTuple" if kind == "tuple" else "dataclass" if kind == "object" else kind
        wanted = str(_TO_DICTS if target is dict else _TYPED)
        for step, cells in (
            ("decode", compare(_rate(deserializer, records), _rate(read, bodies), repeats)),
            ("decode a batch", compare(batch_rate(deserializer.many, records), _rate(read, bodies), repeats)),
            ("encode", compare(_rate(serializer, elements), _rate(write, values), repeats)),
        ):
            found.append([name, kind, step, *cells, wanted])
    to_arrow = AvroToArrow(schema)
    if [plain(each) for each in to_arrow(records).to_pylist()] != [plain(each) for each in values]:
        raise UnequalWork(f"{name}: the Arrow batch has other values")
    cells = compare(batch_rate(to_arrow, records), _rate(read, bodies), repeats)
    return [*found, [name, "Arrow batch", "decode a batch", *cells, _TO_ARROW[name]]]


def lines_beside_java(jdk: Jdk, name: str, schema: Any, values: list[Any], repeats: int) -> list[list[str]]:
    """Returns the lines of one schema, dicts beside GenericRecords. Raises `UnequalWork`."""
    serializer, deserializer = AvroSerializer(schema), AvroDeserializer(schema)
    bodies = [serializer(each).body for each in values]
    records = [record_of(body) for body in bodies]
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder,
        JavaAvro(jdk, Path(folder), json.dumps(schema), bodies) as java,
    ):
        again = java.encoded()
        # Java does not keep the order of a map's entries: those bytes are compared by what they say.
        if (
            list(map(len, again)) != list(map(len, bodies))
            or [deserializer(record_of(each)) for each in again] != values
        ):
            raise UnequalWork(f"{name}: Java does not write what it was given to read")
        java.warm_up(_WARM_UP_S)
        for kind, step, ours in (
            ("dict / GenericRecord", "decode", _rate(deserializer, records)),
            ("dicts of a batch / GenericRecord", "decode", batch_rate(deserializer.many, records)),
            ("Arrow batch / GenericRecord", "decode", batch_rate(AvroToArrow(schema), records)),
            ("dict / GenericRecord", "encode", _rate(serializer, values)),
        ):
            found.append([name, kind, step, *compare(ours, functools.partial(java.rate, step), repeats, digits=3)])
    return found


def batch_rate(
    step: Callable[[Sequence[Record]], Any],
    records: Sequence[Record],
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[], float]:
    """Returns the rate of a step that gets 512 records per call, as a read does. `clock` as in `timed`."""

    def rate() -> float:
        gc.collect()
        began = clock()
        for at in range(0, len(records), _BATCH):
            step(records[at : at + _BATCH])
        return len(records) / (clock() - began)

    return rate


def plain(value: Any) -> Any:
    """With maps as dicts: Arrow returns them as pairs."""
    if isinstance(value, list):
        is_map = bool(value) and all(isinstance(each, tuple) for each in value)
        return dict(value) if is_map else [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _rate(step: Step, values: Sequence[Any]) -> Callable[[], float]:
    return functools.partial(timed, step, values)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.avro", description=__doc__)
    parser.add_argument("--values", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-java", action="store_true", help="do not run Java's Avro")
    given = parser.parse_args(argv)
    print(f"Machine: {machine_text()}. fastavro {fastavro.__version__}. {given.repeats} repeats.")
    flats, nesteds = ([make(n) for n in range(given.values)] for make in (flat, nested))
    lines = [
        *lines_of("flat", FLAT, flats, [dict, Flat, FlatData, "row"], given.repeats),
        *lines_of("nested", NESTED, nesteds, [dict, Nested, "row"], given.repeats),
    ]
    print(aligned([_HEAD, *lines], left={0, 1, 2}))
    if not given.no_java:
        try:
            jdk = find_jdk()
        except BenchError as error:
            print(f"\nJava's Avro did not run: {error}")
            return 0
        lines = [
            *lines_beside_java(jdk, "flat", FLAT, flats, given.repeats),
            *lines_beside_java(jdk, "nested", NESTED, nesteds, given.repeats),
        ]
        print(
            f"\nBeside Java's {LOCK.name.removesuffix('.lock.json')}:\n{aligned([_JAVA_HEAD, *lines], left={0, 1, 2})}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
