"""Unions of several types, read as what each of them is to become, also where only one of two schemas has the union."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from rmqio.errors import LocalError, SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSerializer, Duration, schema_of_class
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import in_python


class Card(NamedTuple):
    number: int


class Iban(NamedTuple):
    text: str


class Payment(NamedTuple):
    by: Card | Iban | list[Card] | dict[str, Card] | uuid.UUID | int | None


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


CARD, IBAN = record("Card", number="int"), record("Iban", text="string")
ID = {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}
SPAN = {"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"}
CARDS, BY_NAME = {"type": "array", "items": "Card"}, {"type": "map", "values": "Card"}
EVERYTHING = record("Payment", by=["null", CARD, IBAN, CARDS, ID, "int"])
SOME_ID = uuid.UUID(int=7)


@pytest.mark.parametrize("value", [None, Card(1), Iban("DE"), [Card(1), Card(2)], SOME_ID, 5], ids=repr)
def test_each_branch_becomes_what_is_annotated(value: Any) -> None:
    body = AvroSerializer(EVERYTHING)(Payment(value)).body
    assert AvroDeserializer(EVERYTHING, to=Payment)(record_of(body)) == Payment(value)


def test_a_map_is_not_taken_for_a_record() -> None:
    schema = record("Payment", by=[CARD, BY_NAME])
    for value in (Card(1), {"number": Card(2)}):
        body = AvroSerializer(schema)(Payment(value)).body
        assert AvroDeserializer(schema, to=Payment)(record_of(body)) == Payment(value)


# The writer's type, the reader's, and a value.
EVOLVED = [
    pytest.param(CARD, ["null", CARD, IBAN], Card(1), id="more branches"),
    pytest.param({"type": "map", "values": CARD}, [CARD, BY_NAME], {"first": Card(1)}, id="a record beside a map"),
    pytest.param(["null", CARD, IBAN], CARD, Card(1), id="one branch"),
    pytest.param(["null", CARD, IBAN], ["null", IBAN], Iban("DE"), id="fewer branches"),
    pytest.param([CARD, IBAN], [IBAN, CARD], Card(1), id="another order"),
    pytest.param(ID, ["null", ID, "int"], SOME_ID, id="a fixed that may be something else"),
    pytest.param([ID, "int"], ID, SOME_ID, id="a fixed that may no longer"),
    pytest.param([ID, CARD, "int"], ["null", ID], SOME_ID, id="a fixed that may be null"),
]


@pytest.mark.parametrize(("written", "read", "value"), EVOLVED)
def test_a_field_that_becomes_a_union_or_ceases_to_be_one(written: Any, read: Any, value: Any) -> None:
    body = AvroSerializer(record("Payment", by=written))(Payment(value)).body
    deserializer = AvroDeserializer(record("Payment", by=read), record("Payment", by=written), to=Payment)
    assert deserializer(record_of(body)) == Payment(value)


TWICE = [
    pytest.param([("a", CARD), ("b", "Card")], [("b", ["null", CARD]), ("a", "Card")], id="defined in the union"),
    pytest.param([("b", CARD), ("a", "Card")], [("a", CARD), ("b", ["null", "Card"])], id="named in the union"),
    pytest.param([("a", CARD), ("b", ["null", "Card"])], [("b", CARD)], id="the first is gone"),
    pytest.param([("a", CARD), ("b", "Card")], [("b", [IBAN, CARD]), ("a", ["null", "Card"])], id="two unions"),
]


@pytest.mark.parametrize(("written", "read"), TWICE)
def test_a_type_that_is_named_where_the_other_schema_defines_it(written: Any, read: Any) -> None:
    writer, reader = (record("Two", **dict(fields)) for fields in (written, read))
    body = AvroSerializer(writer)({"a": Card(1), "b": Card(2)}).body
    found = AvroDeserializer(reader, writer)(record_of(body))
    assert found == {name: {"number": 1 if name == "a" else 2} for name, _ in read}
    class_of_two = NamedTuple(  # type: ignore[misc]  # its fields are known to the running test only
        "Two", [(name, Card | Iban | None if isinstance(kind, list) else Card) for name, kind in read]
    )
    typed = AvroDeserializer(reader, writer, to=class_of_two)(record_of(body))
    assert typed == class_of_two(*(Card(1 if name == "a" else 2) for name, _ in read))


@dataclass(frozen=True)
class Paid:
    order: str
    cents: int


@dataclass(frozen=True)
class Refunded(Paid):
    pass


class Event(NamedTuple):
    what: Paid | Refunded
    all: list[Paid | Refunded]


def test_a_class_is_written_as_the_branch_of_its_name() -> None:
    schema = schema_of_class(Event)
    event = Event(Refunded("o1", 500), [Paid("o2", 1), Refunded("o3", 2)])
    assert AvroDeserializer(schema, to=Event)(record_of(AvroSerializer(schema)(event).body)) == event


class Plain(enum.Enum):
    NEW = 1


class Text(str, enum.Enum):  # noqa: UP042 - as it is often written
    NEW = "fresh"


class Str(enum.StrEnum):
    NEW = enum.auto()


class One(NamedTuple):
    kind: Plain


class Several(NamedTuple):
    kind: Plain | uuid.UUID | None


@pytest.mark.parametrize("kind", [Plain, Text, Str])
@pytest.mark.parametrize("in_union", [False, True], ids=["alone", "in a union"])
def test_enums_of_every_kind(kind: type[enum.Enum], in_union: bool) -> None:
    symbols = {"type": "enum", "name": "Kind", "symbols": ["NEW"]}
    schema = record("Holder", kind=["null", symbols, "int"] if in_union else symbols)

    class Holder(NamedTuple):
        kind: Any

    Holder.__annotations__["kind"] = kind | int | None if in_union else kind
    (new,) = kind
    body = AvroSerializer(schema)(Holder(new)).body
    (found,) = AvroDeserializer(schema, to=Holder)(record_of(body))
    assert found is new


def test_an_enum_that_becomes_one_of_several() -> None:
    symbols = {"type": "enum", "name": "Kind", "symbols": ["NEW"]}
    written, read = record("Holder", kind=symbols), record("Holder", kind=["null", symbols, ID])
    body = AvroSerializer(written)({"kind": "NEW"}).body
    assert AvroDeserializer(read, written, to=Several)(record_of(body)) == Several(Plain.NEW)


@pytest.mark.parametrize("text", ["string", {"type": "string"}])
def test_text_is_no_enum(text: Any) -> None:
    with pytest.raises(LocalError, match=r"Holder.kind is annotated Plain, and is text by the schema"):
        AvroDeserializer(record("Holder", kind=text), to=One)


def test_whatever_a_class_raises_is_reported_without_the_content_of_the_record() -> None:
    @dataclass
    class Picky:
        kind: str

        def __post_init__(self) -> None:
            raise KeyError(self.kind)

    schema = record("Picky", kind="string")
    body = AvroSerializer(schema)({"kind": "CANARY"}).body
    with pytest.raises(SerdeError, match=r"cannot be converted to the target \(KeyError\)") as caught:
        AvroDeserializer(schema, to=Picky)(record_of(body))
    assert "CANARY" not in str(caught.value)


def test_a_map_that_could_be_a_record_is_refused() -> None:
    written, read = record("Payment", by=CARD), record("Payment", by=["null", CARD, BY_NAME])
    body = AvroSerializer(written)(Payment(Card(1))).body
    with pytest.raises(SerdeError, match="cannot be converted to the target"):
        AvroDeserializer(read, written, to=Payment)(record_of(body))
    assert AvroDeserializer(read, written)(record_of(body)) == {"by": {"number": 1}}


def test_a_duration_in_a_union() -> None:
    schema = record("Payment", by=["null", SPAN], other=[SPAN, "int"]) | {
        "fields": [{"name": "by", "type": ["null", SPAN]}, {"name": "other", "type": ["Span", "int"]}]
    }
    value = {"by": Duration(1, 2, 3), "other": Duration(4, 5, 6)}
    body = AvroSerializer(schema)(value).body
    assert AvroDeserializer(schema)(record_of(body)) == value


@pytest.fixture(params=["C", "Python"])
def made(request: pytest.FixtureRequest) -> Any:
    """Makes a deserializer with and without the extension."""
    return in_python if request.param == "Python" else lambda make: make()


def tree(*more: dict[str, Any], values: Any = "X") -> dict[str, Any]:
    """A record with a union of a map of itself and another record, which has no use for a conversion."""
    union = [{"type": "map", "values": values}, record("Y", z="int")]
    return {"type": "record", "name": "X", "fields": [{"name": "f", "type": union}, *more]}


TREES: list[Any] = [{"z": 1}, {}, {"a": {"f": {"z": 2}}, "z": {"f": {}}}]


@pytest.mark.parametrize("value", TREES, ids=str)
def test_a_record_is_not_taken_for_a_map_of_the_record_that_holds_it(made: Any, value: Any) -> None:
    schema = tree()
    body = AvroSerializer(schema)({"f": value}).body
    assert made(lambda: AvroDeserializer(schema))(record_of(body)) == {"f": value}


@pytest.mark.parametrize("value", TREES[:2], ids=str)
def test_nor_if_it_is_in_an_array_in_the_map(made: Any, value: Any) -> None:
    schema = tree(values={"type": "array", "items": "X"})
    body = AvroSerializer(schema)({"f": value}).body
    assert made(lambda: AvroDeserializer(schema))(record_of(body)) == {"f": value}


def test_nor_if_the_map_is_converted(made: Any) -> None:
    schema = tree({"name": "span", "type": SPAN})
    value = {"f": {"k": {"f": {"z": 1}, "span": Duration(1, 2, 3)}}, "span": Duration(4, 5, 6)}
    body = AvroSerializer(schema)(value).body
    assert made(lambda: AvroDeserializer(schema))(record_of(body)) == value


@pytest.mark.parametrize("value", [{"text": "DE"}, {"first": Card(1)}], ids=str)
def test_nor_if_only_the_map_becomes_a_class(made: Any, value: Any) -> None:
    class Mixed(NamedTuple):
        by: dict[str, Card] | dict[str, Any]

    schema = record("Payment", by=[{"type": "map", "values": CARD}, IBAN])
    body = AvroSerializer(schema)({"by": value}).body
    assert made(lambda: AvroDeserializer(schema, to=Mixed))(record_of(body)) == Mixed(value)


def test_nor_with_another_reader(made: Any) -> None:
    written, read = (tree({"name": "s", "type": kind}) for kind in ("bytes", "string"))
    for value in TREES[:2]:
        body = AvroSerializer(written)({"f": value, "s": b"x"}).body
        assert made(lambda: AvroDeserializer(read, written))(record_of(body)) == {"f": value, "s": "x"}
    alone = {**written, "fields": [{"name": "f", "type": record("Y", z="int")}, written["fields"][1]]}
    body = AvroSerializer(alone)({"f": {"z": 1}, "s": b"x"}).body
    assert made(lambda: AvroDeserializer(read, alone))(record_of(body)) == {"f": {"z": 1}, "s": "x"}


def test_a_record_is_converted_through_records_that_hold_each_other(made: Any) -> None:
    """Python knows whether one of them is converted only after it has seen the next one."""
    inner = {"type": "record", "name": "C", "fields": [{"name": "b", "type": ["null", "B"]}]}
    middle = {
        "type": "record",
        "name": "B",
        "fields": [{"name": "c", "type": ["null", inner]}, {"name": "a", "type": ["null", "A"]}],
    }
    outer = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "b", "type": ["null", middle]}, {"name": "span", "type": SPAN}],
    }
    value: dict[str, Any] = {"b": None, "span": Duration(1, 2, 3)}
    for _ in range(2):
        value = {"b": {"c": {"b": {"c": None, "a": value}}, "a": value}, "span": Duration(4, 5, 6)}
    body = AvroSerializer(outer)(value).body
    assert made(lambda: AvroDeserializer(outer))(record_of(body)) == value
