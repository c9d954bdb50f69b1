"""Schemas are told apart by normal form, ids and fingerprints; and the errors' flags."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import pytest

from rmqio.errors import LocalError, RmqioError
from rmqio.serde.registry import RegistryUnavailable, SchemaRegistryError, UnknownSchema, fingerprint
from rmqio.serde.registry.base import LARGEST_ID, content_id, normal_form

# Avro's own tests for its implementations (share/test/data/schema-tests.txt): the fingerprint as a signed number.
FINGERPRINTS = [
    ('"null"', 7195948357588979594),
    ('"boolean"', -6970731678124411036),
    ('"int"', 8247732601305521295),
    ('{"type":"int"}', 8247732601305521295),
    ('"long"', -3434872931120570953),
    ('"float"', 5583340709985441680),
    ('"double"', -8181574048448539266),
    ('"bytes"', 5746618253357095269),
    ('"string"', -8142146995180207161),
    ("[  ]", -1241056759729112623),
    ('[ "int" , {"type":"boolean"} ]', 5392556393470105090),
    ('{"fields":[], "type":"record", "name":"foo"}', -4824392279771201922),
    ('{"fields":[], "type":"record", "name":"foo", "doc":"foo", "aliases":["foo","bar"]}', -4824392279771201922),
    ('{"fields":[], "type":"record", "name":"foo", "namespace":"x.y"}', 5916914534497305771),
    ('{"fields":[], "type":"record", "name":"a.b.foo", "namespace":"x.y"}', -4616218487480524110),
    ('{"namespace":"x.y.z", "type":"enum", "name":"foo", "symbols":["A1", "A2"]}', -4448647247586288245),
    ('{"name":"foo","type":"fixed","size":15}', 1756455273707447556),
    ('{ "items":{"type":"null"}, "type":"array"}', -589620603366471059),
    ('{ "values":"string", "type":"map"}', -8732877298790414990),
    (
        '{"type":"record","name":"PigValue","fields":[{"name":"value", "type":["null", "int", "long", "PigValue"]}]}',
        -1759257747318642341,
    ),
]


@pytest.mark.parametrize(("schema", "number"), FINGERPRINTS)
def test_fingerprints_are_those_of_avro(schema: str, number: int) -> None:
    assert fingerprint(schema) == number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    "schema",
    [
        '"nothing"',
        "{}",
        '{"type":"record","name":"A","fields":[{}]}',
        '{"type":"array"}',
        '{"type":"enum","name":"A"}',
        "int",
    ],
)
def test_what_is_no_schema_has_no_fingerprint(schema: str) -> None:
    with pytest.raises(LocalError, match=r"not an Avro schema: |the schema is not JSON"):
        fingerprint(schema)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ('{"type":"int"}', ' { "type" :\n"int" } ', True),
        ('{"type":"fixed","name":"F","size":2}', '{"size":2,"name":"F","type":"fixed"}', True),
        ('"\\u6d59"', '"浙"', True),
        ('"int"', '{"type":"int"}', False),
        ('{"type":"bytes"}', '{"type":"bytes","logicalType":"decimal","precision":9}', False),
        ('{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":2,"doc":""}', False),
        ('["null","int"]', '["int","null"]', False),
    ],
)
def test_schemas_are_the_same_or_not(one: str, other: str, is_same: bool) -> None:
    assert (normal_form(one) == normal_form(other)) == is_same
    assert (content_id(one) == content_id(other)) == is_same


def test_ids_fit_a_signed_number_of_32_bits() -> None:
    ids = {content_id(f'{{"type":"fixed","name":"F","size":{size}}}') for size in range(1_000)}
    assert len(ids) > 990
    assert 1 <= min(ids) < 2**28 < 2**30 < max(ids) <= LARGEST_ID


def test_a_lone_surrogate_escaped_is_hashed() -> None:
    assert content_id('"\\ud800"') != content_id('"\\ud801"')


@pytest.mark.parametrize(
    ("error", "is_retriable"), [(SchemaRegistryError, False), (UnknownSchema, False), (RegistryUnavailable, True)]
)
def test_errors_say_whether_to_try_again(error: type[SchemaRegistryError], is_retriable: bool) -> None:
    assert error.retriable is is_retriable
    assert issubclass(error, RmqioError)
    copy = pickle.loads(pickle.dumps(error("why")))
    assert (type(copy), str(copy)) == (error, "why")


def test_fastavro_is_not_needed_to_import_it() -> None:
    program = (
        "import sys; sys.modules['fastavro'] = None; from rmqio.serde.registry import *;"
        "registry = MemoryRegistry(); registry.register('a', '\"int\"'); registry.by_fingerprint(bytes(8))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(r"need fastavro: pip install 'rmqio\[avro\]'", ended.stderr)
