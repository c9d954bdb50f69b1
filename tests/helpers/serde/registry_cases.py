"""Cases that hold for every schema registry. Each one starts with an empty registry."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmqio.errors import LocalError
from rmqio.serde.registry import RegisteredSchema, RestRegistry, SchemaRegistry, UnknownSchema

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"}]}'
ORDER_2 = (
    '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"string"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)
# The canonical form of ORDER.
ORDER_DOCUMENTED = ORDER.replace('"fields"', '"doc":"An order","fields"')
PRICE = '{"type":"fixed","name":"Price","size":8}'


def case_a_schema_is_found_again(registry: SchemaRegistry) -> None:
    schema_id = registry.register("orders", ORDER)
    assert registry.by_id(schema_id) == ORDER
    assert registry.by_version("orders", 1) == RegisteredSchema("orders", 1, schema_id, ORDER)
    assert registry.by_version("orders") == RegisteredSchema("orders", 1, schema_id, ORDER)
    assert type(registry.by_version("orders")) is RegisteredSchema


def case_versions_are_counted(registry: SchemaRegistry) -> None:
    ids = [registry.register("orders", schema) for schema in (ORDER, ORDER_2)]
    assert len(set(ids)) == 2
    assert registry.versions("orders") == [1, 2]
    assert [registry.by_version("orders", version).schema for version in (1, 2, None)] == [ORDER, ORDER_2, ORDER_2]
    assert [registry.by_id(schema_id) for schema_id in ids] == [ORDER, ORDER_2]


def case_the_same_again_is_no_new_version(registry: SchemaRegistry) -> None:
    spaced = ORDER.replace(",", " ,\n ").replace(":", " : ")
    ids = {registry.register("orders", schema) for schema in (ORDER, ORDER_2, ORDER, spaced)}
    assert len(ids) == 2
    assert registry.versions("orders") == [1, 2]
    assert registry.by_version("orders").schema == ORDER_2


def case_one_schema_of_two_subjects_has_one_id(registry: SchemaRegistry) -> None:
    assert registry.register("orders", ORDER) == registry.register("orders-archive", ORDER)
    assert registry.subjects() == ["orders", "orders-archive"]
    assert registry.by_version("orders-archive").version == 1


def case_what_the_canonical_form_leaves_out_counts(registry: SchemaRegistry) -> None:
    first, second = registry.register("orders", ORDER), registry.register("orders", ORDER_DOCUMENTED)
    assert first != second
    assert registry.by_id(second) == ORDER_DOCUMENTED


def case_subjects_are_listed(registry: SchemaRegistry) -> None:
    assert registry.subjects() == []
    for subject in ("orders.v1", "Orders_2", "a.b-c", "%RETRY%group"):
        registry.register(subject, PRICE)
    assert registry.subjects() == ["%RETRY%group", "Orders_2", "a.b-c", "orders.v1"]
    assert [registry.by_version(subject).subject for subject in registry.subjects()] == registry.subjects()


def case_a_type_by_its_name_is_a_schema(registry: SchemaRegistry) -> None:
    assert registry.by_id(registry.register("text", '"string"')) == '"string"'
    assert registry.by_id(registry.register("either", '["null","string"]')) == '["null","string"]'


def case_what_is_not_there_is_unknown(registry: SchemaRegistry) -> None:
    schema_id = registry.register("orders", ORDER)
    for ask in (
        lambda: registry.by_id(schema_id + 1),
        lambda: registry.by_id(-1),
        lambda: registry.by_version("nothing"),
        lambda: registry.by_version("nothing", 1),
        lambda: registry.by_version("orders", 2),
        lambda: registry.by_version("orders", 0),
        lambda: registry.versions("nothing"),
        lambda: registry.by_fingerprint(bytes(8)),
    ):
        with pytest.raises(UnknownSchema) as caught:
            ask()
        assert not caught.value.retriable
        assert type(pickle.loads(pickle.dumps(caught.value))) is UnknownSchema


def case_what_is_no_schema_is_refused(registry: SchemaRegistry) -> None:
    for schema, message in (
        ("string", "the schema is not JSON: .* at line 1 column 1"),
        ('{"type":', "the schema is not JSON: .* at line 1 column 9"),
        ("", "the schema is not JSON"),
        ("5", "the schema is JSON of type int"),
        ("null", "the schema is JSON of type NoneType"),
        ("[" * 200_000, "nested too deeply"),
        ('"\ud800"', "lone surrogate"),
    ):
        with pytest.raises(LocalError, match=message):
            registry.register("orders", schema)
    with pytest.raises(LocalError):
        registry.register("", ORDER)
    assert registry.subjects() == []


def case_a_fingerprint_has_eight_bytes(registry: SchemaRegistry) -> None:
    with pytest.raises(LocalError, match="a fingerprint of 7 bytes; a CRC-64-AVRO has 8"):
        registry.by_fingerprint(bytes(7))


def case_a_pickled_one_is_equal_and_works(registry: SchemaRegistry) -> None:
    schema_id = registry.register("orders", ORDER)
    copy = pickle.loads(pickle.dumps(registry))
    assert copy == registry
    assert type(copy) is type(registry)
    assert copy.by_id(schema_id) == ORDER
    assert copy.register("orders", ORDER) == schema_id
    assert copy.versions("orders") == [1]
    if isinstance(copy, RestRegistry):
        copy.close()


def case_threads_may_share_it(registry: SchemaRegistry) -> None:
    start = threading.Barrier(4)

    def work(number: int) -> list[int]:
        start.wait()
        ids = []
        for size in range(1, 9):
            schema = PRICE.replace("8", str(size))
            ids.append(registry.register("shared", schema))
            assert registry.by_id(ids[-1]) == schema
            registry.register(f"own-{number}", schema)
            assert registry.by_version(f"own-{number}").version == size
        return ids

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert all(ids == results[0] for ids in results)
    assert registry.versions("shared") == list(range(1, 9))
    assert registry.subjects() == ["own-0", "own-1", "own-2", "own-3", "shared"]


CASES: list[Callable[[SchemaRegistry], None]] = [
    case_a_schema_is_found_again,
    case_versions_are_counted,
    case_the_same_again_is_no_new_version,
    case_one_schema_of_two_subjects_has_one_id,
    case_what_the_canonical_form_leaves_out_counts,
    case_subjects_are_listed,
    case_a_type_by_its_name_is_a_schema,
    case_what_is_not_there_is_unknown,
    case_what_is_no_schema_is_refused,
    case_a_fingerprint_has_eight_bytes,
    case_a_pickled_one_is_equal_and_works,
    case_threads_may_share_it,
]
