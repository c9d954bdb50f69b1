"""Every registry without a server keeps the contract; tests/integration/serde/test_registry_rest.py has a real one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqio.serde.registry import (
    FolderRegistry,
    MemoryRegistry,
    RestRegistry,
    SchemaRegistry,
    SchemaRegistryError,
    fingerprint,
)
from tests.helpers.serde.registry_cases import CASES, ORDER, ORDER_2, ORDER_DOCUMENTED, PRICE
from tests.helpers.serde.registry_server import confluent, serving


@contextlib.contextmanager
def _over_http() -> Iterator[RestRegistry]:
    with serving(confluent(MemoryRegistry())) as server:
        registry = RestRegistry(server.url)
        try:
            yield registry
        finally:
            registry.close()


@pytest.fixture(params=["memory", "folder", "rest"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SchemaRegistry]:
    if request.param == "rest":
        with _over_http() as registry:
            yield registry
    else:
        yield MemoryRegistry() if request.param == "memory" else FolderRegistry(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_it_holds(registry: SchemaRegistry, case: Callable[[SchemaRegistry], None]) -> None:
    case(registry)


@pytest.fixture(params=["memory", "folder"])
def searched(request: pytest.FixtureRequest, tmp_path: Path) -> SchemaRegistry:
    return MemoryRegistry() if request.param == "memory" else FolderRegistry(tmp_path)


def test_a_schema_is_found_by_its_fingerprint(searched: SchemaRegistry) -> None:
    for subject, schema in (("orders", ORDER), ("orders", ORDER_DOCUMENTED), ("orders", ORDER_2), ("prices", PRICE)):
        searched.register(subject, schema)
    assert fingerprint(ORDER) == fingerprint(ORDER_DOCUMENTED)
    assert searched.by_fingerprint(fingerprint(ORDER)) == ORDER, "of several the first"
    assert searched.by_fingerprint(fingerprint(ORDER_2)) == ORDER_2
    assert searched.by_fingerprint(fingerprint(PRICE)) == PRICE


def test_json_that_is_no_avro_is_reported_when_fingerprints_are_needed(searched: SchemaRegistry) -> None:
    searched.register("orders", '{"type":"nothing"}')
    with pytest.raises(SchemaRegistryError, match=r"'orders' version 1: not an Avro schema: UnknownType"):
        searched.by_fingerprint(bytes(8))


def test_ids_mean_the_same_everywhere(tmp_path: Path) -> None:
    """Else a message written with the id of one copy would be read with another schema by the next one."""
    one, two, folder = MemoryRegistry(), MemoryRegistry(), FolderRegistry(tmp_path)
    ids = [one.register("orders", schema) for schema in (ORDER, ORDER_2)]
    assert [two.register("orders", schema) for schema in (ORDER_2, ORDER)] == ids[::-1]
    assert [folder.register("others", schema) for schema in (PRICE, ORDER, ORDER_2)][1:] == ids
    assert ids == [579498705, 860475445], "another release would make other ids"


# Two schemas that the hash gives one id, found by trying.
COLLIDING = ('{"type":"fixed","name":"F","size":823}', '{"type":"fixed","name":"F","size":66688}')


def test_two_schemas_with_one_id_are_refused(searched: SchemaRegistry) -> None:
    searched.register("a", COLLIDING[0])
    with pytest.raises(
        SchemaRegistryError, match="'a' version 1 and 'b' version 1 are different schemas with the same"
    ):
        searched.register("b", COLLIDING[1])
    assert searched.subjects() == ["a"]


def test_a_registry_in_memory_is_equal_by_content() -> None:
    one, two = MemoryRegistry(), MemoryRegistry()
    one.register("orders", ORDER)
    assert one != two
    two.register("orders", ORDER)
    assert one == two
    assert repr(one) == "<MemoryRegistry of 1 schemas>"
