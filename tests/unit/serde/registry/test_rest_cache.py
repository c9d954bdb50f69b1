"""Requests that `RestRegistry` makes once, again after a while, or never."""

from __future__ import annotations

import json

import pytest

from rmqio.serde.registry import MemoryRegistry, RegisteredSchema, RegistryUnavailable, UnknownSchema
from tests.helpers.serde.registry_server import FOUND, SCHEMA, VERSION, Connect, Server, Time, answer, confluent


def test_what_never_changes_is_asked_for_once(server: Server, connect: Connect) -> None:
    server.script(VERSION)
    registry = connect()
    for _ in range(3):
        assert registry.by_version("orders", 1) == RegisteredSchema("orders", 1, 7, SCHEMA)
        assert registry.by_id(7) == SCHEMA
    assert len(server.requests) == 1


def test_a_schema_is_registered_once(server: Server, connect: Connect) -> None:
    server.script(answer(200, {"id": 7}))
    registry = connect()
    assert [registry.register("orders", text) for text in (SCHEMA, SCHEMA.replace(",", " ,\n"))] == [7, 7]
    assert [json.loads(request.body) for request in server.requests] == [{"schema": SCHEMA}]
    assert server.requests[0].content_type == "application/vnd.schemaregistry.v1+json"


def test_the_newest_version_is_asked_for_again_after_a_while(server: Server, connect: Connect, time: Time) -> None:
    kept = MemoryRegistry()
    kept.register("orders", SCHEMA)
    server.handle = confluent(kept)
    registry = connect(latest_ttl_s=60.0)
    assert registry.by_version("orders").version == 1
    kept.register("orders", '"int"')
    time.now += 59
    assert registry.by_version("orders").version == 1
    time.now += 2
    assert registry.by_version("orders").version == 2


def test_the_newest_version_is_asked_for_after_one_was_registered(server: Server, connect: Connect) -> None:
    server.handle = confluent(MemoryRegistry())
    registry = connect()
    registry.register("orders", SCHEMA)
    assert registry.by_version("orders").version == 1
    registry.register("orders", '"int"')
    assert registry.by_version("orders").version == 2


def test_what_is_known_is_used_while_the_registry_is_down(
    server: Server, connect: Connect, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(VERSION)
    registry = connect(latest_ttl_s=60.0)
    registry.by_version("orders")
    server.script(answer(503, {}))
    time.now += 61
    for _ in range(5):
        assert registry.by_version("orders").version == registry.by_version("orders", 1).version == 1
        assert registry.by_id(7) == SCHEMA
    assert len(server.requests) == 1 + 4, "it was asked again once, with its tries"
    assert "version 1 of 'orders' is still considered the newest: schema registry" in caplog.text
    with pytest.raises(RegistryUnavailable):
        registry.by_id(8)
    with pytest.raises(RegistryUnavailable):
        registry.by_version("others")
    server.script(answer(200, {"subject": "orders", "version": 2, "id": 8, "schema": SCHEMA}))
    time.now += 31
    assert registry.by_version("orders").version == 2


def test_an_unknown_id_is_not_asked_for_in_each_message(server: Server, connect: Connect, time: Time) -> None:
    server.script(answer(404, {"error_code": 40403, "message": "Schema not found"}))
    registry = connect()
    for _ in range(5):
        with pytest.raises(UnknownSchema, match=r"GET /schemas/ids/7: Schema not found \(code 40403\)"):
            registry.by_id(7)
    assert len(server.requests) == 1
    server.script(FOUND)
    time.now += 6
    assert registry.by_id(7) == SCHEMA


def test_unknown_ids_do_not_fill_the_memory(server: Server, connect: Connect) -> None:
    server.script(answer(404, {"error_code": 40403, "message": "Schema not found"}))
    registry = connect()
    for schema_id in range(1_100):
        with pytest.raises(UnknownSchema):
            registry.by_id(schema_id)
    assert len(registry._state.unknown) <= 1_024


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**40])
def test_what_can_be_no_id_is_not_asked_for(server: Server, connect: Connect, schema_id: int) -> None:
    with pytest.raises(UnknownSchema, match=f"{schema_id} cannot be an id"):
        connect().by_id(schema_id)
    assert not server.requests


def test_fingerprints_cannot_be_looked_for(server: Server, connect: Connect) -> None:
    with pytest.raises(UnknownSchema, match="Confluent's API cannot search for the fingerprint 0102030405060708"):
        connect().by_fingerprint(bytes(range(1, 9)))
    assert not server.requests
