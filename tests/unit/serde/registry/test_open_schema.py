"""A client of RocketMQ's own schema registry, against a server that answers as its source says."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from rmqio.errors import LocalError
from rmqio.serde.registry import BasicAuth, OpenSchemaRegistry, RegistryUnavailable, SchemaRegistryError, UnknownSchema
from tests.helpers.serde.open_schema_server import PREFIX, OpenSchemas
from tests.helpers.serde.registry_server import SCHEMA, Server, answer, serving

OTHER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'


@pytest.fixture
def kept() -> OpenSchemas:
    return OpenSchemas()


@pytest.fixture
def server(kept: OpenSchemas) -> Iterator[Server]:
    with serving(kept.handle) as made:
        yield made


def test_subjects_and_their_schemas_are_found(kept: OpenSchemas, server: Server) -> None:
    first, second = kept.register("orders", SCHEMA), kept.register("orders", OTHER)
    kept.register("订单", SCHEMA)
    registry = OpenSchemaRegistry(server.url + PREFIX)
    assert registry.subjects() == ["orders", "订单"]
    assert registry.newest("orders") == ("orders", 2, second, OTHER)
    assert registry.by_record_id("orders", first) == ("orders", 1, first, SCHEMA)
    assert registry.by_schema("orders", OTHER).record_id == second
    assert registry.newest("订单").version == 1
    assert pickle.loads(pickle.dumps(registry)) == registry


def test_a_record_is_requested_once_and_an_unknown_one_not_for_each_message(kept: OpenSchemas, server: Server) -> None:
    first = kept.register("orders", SCHEMA)
    registry = OpenSchemaRegistry(server.url + PREFIX, retries=0)
    for _ in range(3):
        registry.by_record_id("orders", first)
    assert len(server.requests) == 1
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="there is no such schema"):
            registry.by_record_id("orders", first + 1)
    assert len(server.requests) == 2
    with pytest.raises(UnknownSchema, match="has no record"):  # the version is there, of another schema
        registry.by_record_id("orders", first + (1 << 14))


def test_its_own_codes_are_understood(kept: OpenSchemas, server: Server) -> None:
    """It sends 40402 and 50001 as HTTP's status, which has three digits."""
    registry = OpenSchemaRegistry(server.url + PREFIX, retries=0)
    with pytest.raises(UnknownSchema, match="there is no such schema"):
        registry.newest("nothing")
    with pytest.raises(SchemaRegistryError, match="refuses POST"):
        registry.by_schema("nothing", SCHEMA)
    server.script(answer(503, {"message": "later"}))
    with pytest.raises(RegistryUnavailable, match="later"):
        registry.subjects()


def test_other_schemas_than_avro_and_other_servers_are_refused(kept: OpenSchemas, server: Server) -> None:
    kept.register("orders", SCHEMA)
    kept.kind = "JSON"
    registry = OpenSchemaRegistry(server.url + PREFIX, retries=0)
    with pytest.raises(SchemaRegistryError, match="'orders' is of type JSON; only AVRO is supported"):
        registry.newest("orders")
    server.script(answer(200, {"subjects": []}))
    with pytest.raises(SchemaRegistryError, match="did not answer like the API of RocketMQ's schema registry"):
        registry.subjects()


@pytest.mark.parametrize(
    ("tail", "path"),
    [
        ("", "/cluster/default/tenant/default"),
        ("/", "/cluster/default/tenant/default"),
        ("/cluster/c/tenant/t", "/cluster/c/tenant/t"),
    ],
)
def test_a_cluster_and_a_tenant_can_be_named(tail: str, path: str) -> None:
    assert OpenSchemaRegistry(f"http://h:8080{PREFIX}{tail}").url == f"http://h:8080{PREFIX}{path}"


@pytest.mark.parametrize("url", ["http://h", f"http://h{PREFIX}/cluster/c", f"http://h{PREFIX}/tenant/t/cluster/c"])
def test_an_address_that_is_not_its_api_is_refused(url: str) -> None:
    with pytest.raises(LocalError, match=PREFIX):
        OpenSchemaRegistry(url)


def test_credentials_are_sent_and_not_shown(kept: OpenSchemas, server: Server) -> None:
    url = server.url.replace("//", "//me:secret@") + PREFIX
    registry = OpenSchemaRegistry(url)
    assert registry.subjects() == []
    assert server.requests[0].authorization is not None
    assert "secret" not in repr(registry)
    with pytest.raises(LocalError, match="both in url= and in auth="):
        OpenSchemaRegistry(url, auth=BasicAuth("a", "b"))
