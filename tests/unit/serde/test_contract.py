"""The contract of every serializer and deserializer (`rmqio.serde.base`): each test is one clause, over all cases."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("jsonschema_rs", reason="JSON Schemas need the extra 'json-schema'")

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler
from apache_beam.typehints.row_type import RowTypeConstraint
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio import serde
from rmqio.errors import SerdeError
from rmqio.model import Message, Record
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.wire.properties import encode_properties
from tests.helpers.serde.serde_cases import CASES, Case
from tests.helpers.serde.serde_orders import SECRET

THREADS = 8

pytestmark = pytest.mark.timeout(60)  # nothing hangs
of_all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
few = settings(max_examples=25, derandomize=True, database=None)


def record(message: Message) -> Record:
    """As the broker would hand it out."""
    properties = encode_properties(message, message_id="X")
    return Record("orders", "broker-a", 3, 42, message.body, 0, 0, properties, 0, 0, 0, 0, 0, b"", b"", 0, 0)


def plain(value: Any) -> Any:
    """With the type of each value: == tells neither 1, 1.0 and True apart, nor 0.0 and -0.0."""
    if isinstance(value, beam.Row):
        return ("row", {name: plain(each) for name, each in value.as_dict().items()})
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), plain(vars(value)))
    if isinstance(value, (list, tuple)):
        return (type(value), [plain(each) for each in value])
    return (type(value), str(value)) if isinstance(value, float) else (type(value), value)


# ---- clauses --------------------------------------------------------------------------------------------------------


@of_all_cases
@few
@given(data=st.data())
def test_what_is_written_is_read_back(case: Case, data: st.DataObject) -> None:
    element = data.draw(case.elements)
    found = case.reader(record(case.writer(element)))
    assert plain(found) == plain(element)
    assert holds(found, case.reader.output_type)


@of_all_cases
def test_a_bad_element_is_refused_without_being_quoted(case: Case) -> None:
    for element in case.bad_elements:
        with pytest.raises(SerdeError) as caught:
            case.writer(element)
        assert str(caught.value).startswith(f"element of type {type(element).__qualname__} does not serialize: ")
        assert SECRET not in str(caught.value)


@of_all_cases
def test_a_bad_body_is_refused_by_its_place_without_being_quoted(case: Case) -> None:
    for body in case.bad_bodies:
        with pytest.raises(SerdeError) as caught:
            case.reader(record(Message(body)))
        start = f"queue orders/broker-a/3, offset 42: body of {len(body)} bytes does not deserialize: "
        assert str(caught.value).startswith(start)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("case", [each for each in CASES if each.is_delimited], ids=lambda case: case.name)
@settings(few, max_examples=5)
@given(data=st.data())
def test_a_body_that_ends_early_or_goes_on_is_refused(case: Case, data: st.DataObject) -> None:
    body = case.writer(data.draw(case.elements)).body
    for other in [*(body[:end] for end in range(len(body))), body + SECRET.encode()]:
        with pytest.raises(SerdeError) as caught:
            case.reader(record(Message(other)))
        assert SECRET not in str(caught.value)


@of_all_cases
@settings(few, max_examples=40)
@given(data=st.data())
def test_any_body_is_an_element_of_the_type_or_a_serde_error(case: Case, data: st.DataObject) -> None:
    """Random bytes, and bodies that were right before some of their bytes changed."""
    body = data.draw(st.binary(max_size=40) | mutations(case.writer(data.draw(case.elements)).body))
    try:
        found = case.reader(record(Message(body)))
    except SerdeError:
        return
    assert not case.is_typed or holds(found, case.reader.output_type)


@of_all_cases
@settings(few, max_examples=3)
@given(data=st.data())
def test_a_pickled_copy_is_equal_and_does_the_same_also_after_use(case: Case, data: st.DataObject) -> None:
    element = data.draw(case.elements)
    serializer, deserializer = case.write(), case.read()
    unused = [(copy(serializer), copy(deserializer)) for copy in COPIES]
    stored = record(serializer(element))
    expected = plain(deserializer(stored))
    used = [(copy(serializer), copy(deserializer)) for copy in COPIES]
    for write, read in [*unused, *used]:
        assert (write, read) == (serializer, deserializer)
        assert (hash(write), hash(read)) == (hash(serializer), hash(deserializer))
        assert plain(read(stored)) == plain(deserializer(record(write(element)))) == expected
        assert read.output_type == deserializer.output_type


@of_all_cases
@settings(few, max_examples=1)
@given(data=st.data())
def test_threads_may_share_one(case: Case, data: st.DataObject) -> None:
    """From the first use on, which is when caches are filled; with bad elements between."""
    elements = data.draw(st.lists(case.elements, min_size=30, max_size=30))
    expected = [plain(each) for each in elements]
    serializer, deserializer = case.write(), case.read()

    def work(shift: int) -> list[Any]:
        order = [*range(shift, len(elements)), *range(shift)]
        found: list[Any] = [None] * len(elements)
        for at in order:
            found[at] = plain(deserializer(record(serializer(elements[at]))))
            for bad in case.bad_elements[:1]:
                with pytest.raises(SerdeError):
                    serializer(bad)
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(work, range(0, THREADS * 3, 3)))
    finally:
        sys.setswitchinterval(interval)
    assert results == [expected] * THREADS


COPIES: list[Callable[[Any], Any]] = [
    lambda value: pickle.loads(pickle.dumps(value)),
    lambda value: cloudpickle_pickler.loads(cloudpickle_pickler.dumps(value)),
]


def mutations(body: bytes) -> st.SearchStrategy[bytes]:
    """One to three times a byte is replaced, a piece cut out, or bytes are put in."""
    at = st.integers(0, len(body))
    replaced = st.tuples(at, st.just(1), st.binary(min_size=1, max_size=1))
    cut_out = st.tuples(at, st.integers(1, 4), st.just(b""))
    put_in = st.tuples(at, st.just(0), st.binary(min_size=1, max_size=9))

    def changed(edits: list[tuple[int, int, bytes]]) -> bytes:
        result = body
        for start, length, new in edits:
            result = result[:start] + new + result[start + length :]
        return result

    return st.lists(replaced | cut_out | put_in, min_size=1, max_size=3).map(changed)


def holds(value: Any, hint: Any) -> bool:
    """Whether a value is of a type hint; of those that the cases have."""
    if hint is Any:
        return True
    if isinstance(hint, RowTypeConstraint):
        return isinstance(value, beam.Row) and all(
            holds(getattr(value, name), inner) for name, inner in hint._fields  # Beam has no public way
        )  # fmt: skip
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, type(int | str)):
        return any(holds(value, each) for each in inner)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(holds(k, inner[0]) and holds(v, inner[1]) for k, v in value.items())
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, list) and all(holds(each, inner[0]) for each in value)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        fields = typing.get_type_hints(hint)
        return type(value) is hint and all(holds(getattr(value, name), each) for name, each in fields.items())
    return type(value) is hint


# ---- configurations -------------------------------------------------------------------------------------------------

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
MAKERS: list[Callable[[], Any]] = [
    *(make for case in CASES for make in (case.write, case.read)),
    lambda: serde.StringDeserializer("gb18030", "replace"),
    lambda: serde.JsonSerializer(deterministic=True, key_fields=["id"], tag_field="kind"),
    lambda: serde.JsonDeserializer(schema={"type": "object"}),
    lambda: serde.SimpleKeyValueDeserializer("id", None),
    lambda: serde.SimpleKeyValueSerializer(None, "address"),
    lambda: AvroDeserializer(RECORD, "long", framing="auto"),
    lambda: AvroSerializer(RECORD, framing="single_object", key_fields=["a"], tag_field="a"),
]


def test_equal_by_configuration_and_by_nothing_else() -> None:
    made, again = [make() for make in MAKERS], [make() for make in MAKERS]
    for each, same in zip(made, again, strict=True):
        assert each == same
        assert hash(each) == hash(same)
        assert len(repr(each)) < 200
    # Cases share writers and readers; of two that differ in their arguments none are equal.
    shown = {repr(each) + repr(getattr(each, "_config", "")) for each in made}
    assert len(set(made)) == len(shown) > len(CASES)


def test_serde_needs_neither_beam_nor_spark_nor_a_socket() -> None:
    heavy = {"apache_beam", "pyspark", "socket", "rmqio.client", "fastavro", "jsonschema_rs"}
    program = f"import sys, rmqio.serde; print(*({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found == []
