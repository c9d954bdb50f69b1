"""JSON bodies as NamedTuples, dataclasses and TypedDicts: by the standard library, and by msgspec, which must agree."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import subprocess
import sys
import textwrap
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

from rmqio.connect.rows import to_json, to_row
from rmqio.errors import LocalError, SerdeError
from rmqio.serde import JsonDeserializer, JsonSerializer
from rmqio.serde.json import TypedDecoder
from rmqio.serde.json_exact import MAX_DEPTH
from rmqio.serde.json_types import plan_of
from tests.helpers.waiting import at_most
from tests.unit.serde.bodies import (
    BASKET,
    EVERYTHING,
    ORDER,
    SECRET,
    Basket,
    Checked,
    Color,
    Everything,
    Line,
    Nested,
    Order,
    Size,
    Sku,
    Tree,
    plain,
    record,
)

fast = pytest.importorskip("rmqio.serde.json_msgspec", reason="the fast path needs the extra 'json'")

VALID: list[tuple[Any, Any, Any]] = [
    (Order, ORDER, Order(7, "Zoë", 1.0, True, dt.datetime(2026, 1, 31, 10, 0, 0, 123456, dt.UTC), None)),
    (
        Basket,
        BASKET,
        Basket(uuid.UUID(int=0x12345678123456781234567812345678), Decimal("9.90"), [Line("a"), Line("b", 2)]),
    ),
    (
        Everything,
        EVERYTHING,
        Everything(
            dt.date(2026, 1, 31),
            dt.time(23, 59, 59, 500000),
            b"\0\1\2",
            (1.0, 2.5),
            {"a": Decimal("1.1"), "b": None, "c": Decimal("1e3")},
            [True],
            "a",
            {"street": "x", "zip": 3, "größe": Size.LARGE},
            2,
            [Sku("n")],
        ),
    ),
    (Tree, {"name": "a", "children": [{"name": "b", "children": []}]}, Tree("a", [Tree("b", [])])),
    (Checked, {"number": 11, "limit": 11}, Checked(number=11, limit=11)),
    (list[Line], [{"sku": "a"}, {"sku": "b", "count": 0}], [Line("a"), Line("b", 0)]),
    (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
    (int | None, None, None),
    (Color, "blue", Color.BLUE),
]


@pytest.fixture(params=["exact", "fast"])
def _decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the reference alone, and with msgspec before it."""
    if request.param == "exact":
        monkeypatch.setattr("rmqio.serde.json._fast", lambda plan: None)


@pytest.mark.usefixtures("_decoder")
@pytest.mark.parametrize(("cls", "body", "expected"), VALID, ids=lambda each: getattr(each, "__name__", None) or "")
def test_bodies_become_values_of_the_type(cls: Any, body: Any, expected: Any) -> None:
    text = json.dumps({**body, "left_out": [SECRET]} if isinstance(expected, Order) else body).encode()
    found = JsonDeserializer(cls)
    assert plain(found(record(text))) == plain(expected)
    assert plain(found.many([record(text)] * 3)) == plain(([expected] * 3, {}))


@pytest.mark.usefixtures("_decoder")
def test_values_of_any_type_keep_their_digits() -> None:
    text, found = b'{"a":[0.12345678901234567890,0.30000000000000004,2]}', JsonDeserializer(dict[str, Any])
    assert JsonSerializer()(found(record(text))).body == text
    assert [JsonSerializer()(each).body for each in found.many([record(text)] * 2)[0]] == [text] * 2
    with pytest.raises(SerdeError, match="/\\*/0: expected a number, found one that does not fit a double"):
        found(record(b'{"a":[1e400]}'))
    text = b'{"inner":{"a":0.12345678901234567890},"many":[{"a":[12345678901234567890.01]}]}'
    assert to_json(to_row(JsonDeserializer(Nested)(record(text)))).encode() == text


@pytest.mark.parametrize(("cls", "body"), [(cls, body) for cls, body, _ in VALID if cls is not Tree])
def test_the_fast_decoder_takes_what_is_usual(cls: Any, body: Any) -> None:
    """Else the tests above would show the other one twice."""
    decoder = TypedDecoder(plan_of(cls)).fast
    assert decoder is not None
    text = json.dumps(body, ensure_ascii=False).encode()
    assert decoder.is_usual(text)
    assert plain(decoder.decode(text)) == plain(TypedDecoder(plan_of(cls)).exact(text))


@pytest.mark.usefixtures("_decoder")
@pytest.mark.parametrize(
    ("cls", "body", "message"),
    [
        (Order, {**ORDER, "id": "7"}, "/id: expected a whole number, found text"),
        (Order, {**ORDER, "id": 7.0}, "/id: expected a whole number, found a number"),
        (Order, {**ORDER, "id": True}, "/id: expected a whole number, found true or false"),
        (Order, {**ORDER, "note": 1}, "/note: expected text or null, found a whole number"),
        (Order, {**ORDER, "at": SECRET}, "/at: expected a timestamp as in RFC 3339, to microseconds, found other text"),
        (Order, {"id": 1}, "/name: missing"),
        (Order, [1], "the value: expected an object, found an array"),
        (Basket, {**BASKET, "lines": [{"sku": "a"}, {"sku": None}]}, "/lines/1/sku: expected text, found null"),
        (Basket, {**BASKET, "color": SECRET}, "/color: expected one of the values of Color, found another"),
        (Basket, {**BASKET, "total": "NaN"}, "/total: expected a decimal number, found other text"),
        (Basket, {**BASKET, "id": "{" + str(uuid.UUID(int=1)) + "}"}, "/id: expected a UUID, found other text"),
        (Everything, {**EVERYTHING, "by_name": {SECRET: True}}, r"/by_name/\*: expected"),
        (Everything, {**EVERYTHING, "literal": 4}, "/literal: expected one of 'a', 'b', 3, found another"),
        (Checked, {"number": 11}, "the value: Checked raised ValueError"),
    ],
)
def test_what_does_not_fit_is_reported_by_its_place_and_not_quoted(cls: Any, body: Any, message: str) -> None:
    deserializer = JsonDeserializer(cls)
    with pytest.raises(SerdeError, match=message) as raised:
        deserializer(record(json.dumps(body).encode()))
    assert SECRET not in str(raised.value)
    good = record(json.dumps(next(text for each, text, _ in VALID if each is cls)).encode())
    elements, errors = deserializer.many([good, record(json.dumps(body).encode()), good])
    assert len(elements) == 2
    assert list(errors) == [1]


@pytest.mark.usefixtures("_decoder")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"sku": NaN}', "NaN is not JSON"),
        (b'{"sku": "a", "count": 1e400}', "/count: expected a whole number, found a number"),
        (
            b'{"sku": "a", "count": 1' + b"0" * 5_000 + b"}",
            "/count: expected a whole number, found .* of too many digits",
        ),
        (b'{"sku": "\xff"}', "not UTF-8 text"),
        (b'{"sku": "a", "other": "\xff"}', "not UTF-8 text"),
        (b'{"sku": "a"} ' * 2, "not JSON: Extra data"),
        (b"", "not JSON: Expecting value"),
        (b'{"other": ' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b', "sku": "a"}', "nested deeper than 200"),
        (b'{"other": ' + b"[" * 200_000 + b"]" * 200_000 + b', "sku": "a"}', "JSON nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        JsonDeserializer(Line)(record(body))


class Generic(NamedTuple):
    inner: complex


class Twice(NamedTuple):
    either: dt.datetime | str


class Unknown(NamedTuple):
    field: "Missing"  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Generic, r"Generic\.inner is annotated complex, to which no JSON body is decoded; possible are NamedTuples"),
        (
            Twice,
            r"Twice\.either is annotated .*, and two of these types are text in JSON, which does not tell them apart",
        ),
        (Unknown, "the annotations of Unknown cannot be evaluated: name 'Missing' is not defined"),
        (dict[int, str], "to which no JSON body is decoded"),
        (tuple[int, str], "to which no JSON body is decoded"),
    ],
)
def test_a_type_that_cannot_be_decoded_to_is_refused_where_the_pipeline_is_built(cls: Any, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        JsonDeserializer(cls)


def test_a_pickled_deserializer_decodes_the_same() -> None:
    again = pickle.loads(pickle.dumps(JsonDeserializer(Order)))
    text = record(json.dumps(ORDER).encode())
    assert again(text) == JsonDeserializer(Order)(text)
    assert again == JsonDeserializer(Order)


PROGRAM = """
from __future__ import annotations
import apache_beam as beam, dataclasses, json
from typing import NamedTuple, TypedDict
from apache_beam.internal import pickler
from rmqio.serde import JsonDeserializer, JsonSerializer
from rmqio.testing import *
from rmqio import ReadFromRocketMQ, StartFrom, StopAt, Message

class Line(NamedTuple):
    sku: str
    count: int = 1

@dataclasses.dataclass
class Order:
    id: int
    lines: list[Line]
    note: str | None = None

with InMemoryCluster() as cluster:
    cluster.create_topic("orders")
    factory = InMemoryClientFactory(cluster.name)
    for number in range(3):
        cluster.append("orders", json.dumps({"id": number, "lines": [{"sku": "a"}]}).encode())
    with beam.Pipeline() as p:
        read = ReadFromRocketMQ("orders", client_factory=factory, start=StartFrom.earliest(), stop=StopAt.latest(),
                                deserializer=JsonDeserializer(Order))
        p | read | beam.Map(lambda order: print(type(order).__name__, order.id, order.lines[0].count, order.note))
"""


@pytest.mark.skipif(
    tuple(map(int, beam.__version__.split(".")[:2])) < (2, 70),
    reason="old Beams cannot pickle elements of the main program's classes that a worker has made",
)
def test_classes_of_the_main_program_are_decoded_in_workers(tmp_path: Path) -> None:
    """Their annotations are text that only the main program can evaluate."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=at_most(120), check=False)
    assert sorted(done.stdout.splitlines()) == [f"Order {number} 1 None" for number in range(3)], done.stderr
