"""What every serializer and deserializer keeps: it pickles, is equal by value, hashes, and imports nothing heavy."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rmqio import serde
from rmqio.serde.avro import AvroDeserializer, AvroSerializer

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
MAKERS: list[Callable[[], Any]] = [
    serde.BytesDeserializer,
    serde.BytesSerializer,
    serde.StringDeserializer,
    lambda: serde.StringDeserializer("gb18030", "replace"),
    serde.StringSerializer,
    serde.JsonDeserializer,
    lambda: serde.JsonDeserializer(dict[str, Any]),
    serde.JsonSerializer,
    lambda: serde.JsonSerializer(deterministic=True, key_fields=["id"], tag_field="kind"),
    serde.SimpleKeyValueDeserializer,
    lambda: serde.SimpleKeyValueDeserializer("id", None),
    serde.SimpleKeyValueSerializer,
    lambda: serde.SimpleKeyValueSerializer(None, "address"),
    lambda: serde.BodyDeserializer(bytes.decode, str),
    lambda: serde.BodySerializer(str.encode),
    lambda: AvroDeserializer("long"),
    lambda: AvroDeserializer(RECORD, "long", framing="auto"),
    lambda: AvroSerializer("long"),
    lambda: AvroSerializer(RECORD, framing="single_object", key_fields=["a"], tag_field="a"),
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: repr(make()))
def test_equal_by_value_also_after_a_pickle(make: Callable[[], Any]) -> None:
    value = make()
    assert make() == value
    assert hash(make()) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value


def test_different_configurations_differ() -> None:
    values = [make() for make in MAKERS]
    assert len(set(values)) == len(values)


def test_deserializers_say_what_they_make() -> None:
    for value in (make() for make in MAKERS):
        assert type(value).__name__.endswith("Serializer") or value.output_type is not None


def test_serde_needs_neither_beam_nor_spark_nor_a_socket() -> None:
    heavy = {"apache_beam", "pyspark", "socket", "rmqio.client"}
    program = f"import sys, rmqio.serde; print(*({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found == []
