"""`JsonDeserializer(type)` beside `json.loads`, on the same bodies: values per second, and ratio.

python -m bench.json_types [--values 20000] [--repeats 7]

`json.loads` makes dicts and checks nothing. Ours makes values of a type and checks each field; "many" gets a batch of
512 records per call, as a read does. Rates are per second of CPU. Both sides read the same bodies, and the values are
compared before.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from typing import Any, Final, NamedTuple, TypedDict

from bench.avro.__main__ import batch_rate, compare, timed
from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio.model import Record
from rmqio.serde import JsonDeserializer

_HEAD: Final = ("as", "call", "ours/s", "json.loads/s", "ratio", "target")
_TARGET: Final = 5.0


class Order(NamedTuple):
    id: int
    name: str
    share: float | None
    state: str
    is_new: bool
    number: int


@dataclasses.dataclass
class OrderData:
    id: int
    name: str
    share: float | None
    state: str
    is_new: bool
    number: int


class OrderDict(TypedDict):
    id: int
    name: str
    share: float | None
    state: str
    is_new: bool
    number: int


def order(n: int) -> dict[str, Any]:
    share = None if n % 5 == 0 else n / 7
    return {"id": n, "name": f"customer {n}", "share": share, "state": "PAID", "is_new": n % 2 == 0, "number": n % 99}


def as_dict(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value._asdict() if isinstance(value, tuple) else value  # type: ignore[attr-defined, no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.json_types", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    bodies = [json.dumps(order(n)).encode() for n in range(given.values)]
    records = [Record("t", "b", 0, 0, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0) for body in bodies]
    loads = functools.partial(timed, json.loads, bodies, time.thread_time)
    rows = []
    for kind, cls in (("NamedTuple", Order), ("dataclass", OrderData), ("TypedDict", OrderDict)):
        deserializer = JsonDeserializer(cls)
        elements, errors = deserializer.many(records)
        if errors or [as_dict(each) for each in elements] != [json.loads(body) for body in bodies]:
            raise UnequalWork(f"{kind}: the values are not those of json.loads")
        for call, ours in (
            ("one", functools.partial(timed, deserializer, records, time.thread_time)),
            ("many", batch_rate(deserializer.many, records, time.thread_time)),
        ):
            rows.append([kind, call, *compare(ours, loads, given.repeats), f"{_TARGET:g}"])
    print(machine_text(), end="\n\n")
    print(aligned([_HEAD, *rows], {0, 1}))


if __name__ == "__main__":
    main()
