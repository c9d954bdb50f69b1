"""`RestRegistry` with a real registry: Apicurio, which speaks Confluent's API."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from rmqio.serde.registry import (
    RegisteredSchema,
    RegistryUnavailable,
    RestRegistry,
    SchemaRegistry,
    SchemaRegistryError,
    UnknownSchema,
)
from tests.helpers.serde.registry_cases import CASES, ORDER, ORDER_2, PRICE
from tests.helpers.servers.apicurio import Apicurio

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def apicurio() -> Iterator[Apicurio]:
    with Apicurio() as running:
        yield running


@pytest.fixture
def registry(apicurio: Apicurio) -> Iterator[RestRegistry]:
    """With nothing registered; ids go on from those of earlier tests."""
    registry = RestRegistry(apicurio.url)
    yield registry
    for subject in reversed(registry.subjects()):  # what refers to others before these
        for mode in ("", "?permanent=true"):  # the first time hides it, and its versions would go on counting
            url = f"{apicurio.url}/subjects/{quote(subject, safe='')}{mode}"
            urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()
    registry.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("case_"))
def test_it_holds(registry: RestRegistry, case: Callable[[SchemaRegistry], None]) -> None:
    case(registry)


def test_subjects_may_hold_any_character(registry: RestRegistry) -> None:
    subjects = sorted(["a/b", "a b", "50%", "a%2Fb", "what?#;&+", "订单"])
    for subject in subjects:
        registry.register(subject, ORDER)
        registry.register(subject, ORDER_2)
    assert registry.subjects() == subjects
    for subject in subjects:
        assert registry.versions(subject) == [1, 2]
        assert registry.by_version(subject) == registry.by_version(subject, 2)
        assert registry.by_version(subject, 1).schema == ORDER


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda registry: registry.by_id(2_000_000_000), 40403),
        (lambda registry: registry.versions("nothing"), 40401),
        (lambda registry: registry.by_version("nothing"), 40401),
        (lambda registry: registry.by_version("orders", 77), 40402),
    ],
    ids=["id", "versions", "newest", "version"],
)
def test_what_is_not_there_is_unknown(registry: RestRegistry, ask: Callable[[RestRegistry], object], code: int) -> None:
    registry.register("orders", ORDER)
    with pytest.raises(UnknownSchema, match=rf"\(code {code}\)"):
        ask(registry)


def test_json_that_is_no_avro_is_refused(registry: RestRegistry) -> None:
    with pytest.raises(SchemaRegistryError, match=r"status 422: .*does not consider it a valid Avro schema"):
        registry.register("orders", '{"type":"nothing"}')


def test_a_schema_of_another_type_is_refused(registry: RestRegistry, apicurio: Apicurio) -> None:
    body = b'{"schemaType":"JSON","schema":"{\\"$schema\\":\\"http://json-schema.org/draft-07/schema#\\"}"}'
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    urllib.request.urlopen(urllib.request.Request(f"{apicurio.url}/subjects/json/versions", body, headers)).close()
    with pytest.raises(SchemaRegistryError, match="'json' version 1 is of type JSON; only AVRO is supported"):
        registry.by_version("json")


def test_a_schema_that_refers_to_another_one_is_refused(registry: RestRegistry, apicurio: Apicurio) -> None:
    registry.register("price", PRICE)
    body = (
        b'{"schema":"{\\"type\\":\\"array\\",\\"items\\":\\"Price\\"}",'
        b'"references":[{"name":"Price","subject":"price","version":1}]}'
    )
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    urllib.request.urlopen(urllib.request.Request(f"{apicurio.url}/subjects/prices/versions", body, headers)).close()
    with pytest.raises(SchemaRegistryError, match=r"'prices' version 1 refers to other schemas \(Price\)"):
        registry.by_version("prices")


MONEY_PROTO = """
syntax = "proto3";
package shop;
message Money { int64 units = 1; string currency = 2; }
"""


def test_subjects_of_all_types_are_tables_of_sql(registry: RestRegistry, apicurio: Apicurio) -> None:
    """`rmqio sql --catalog URL`: rows of JSON Schema, Protobuf and Avro have the ids of their schemas."""
    pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
    from rmqio.sql.errors import SqlError
    from rmqio.sql.scripts.catalog_file import load_catalogs
    from rmqio.sql.scripts.script import Script
    from tests.unit.sql.catalog import test_typed_subjects as tables
    from tests.unit.sql.formats.protobufs import MONEY, descriptor, message, of_file

    def register(subject: str, kind: str, schema: str) -> int:
        body = json.dumps({"schemaType": kind, "schema": schema}).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        url = f"{apicurio.url}/subjects/{subject}/versions"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return int(json.load(answer)["id"])

    ids = {
        "orders": register("orders-value", "JSON", json.dumps(tables.ORDERS)),
        "money": register("money-value", "PROTOBUF", of_file(MONEY)),
        "carts": register("carts-value", "AVRO", ORDER_2),
    }
    register("text-value", "PROTOBUF", MONEY_PROTO)
    register("union-value", "JSON", tables.UNFIT["union"][0])
    script = Script()
    load_catalogs(script, [apicurio.url])
    assert script.catalog.further is not None
    assert list(script.catalog.further.names()) == ["carts", "money", "orders", "text", "union"]
    assert tables.columns_of(script) == tables.COLUMNS
    assert tables.columns_of(script, "money") == {"units": "BIGINT NOT NULL", "currency": "STRING NOT NULL"}
    rows = {"orders": tables.ROW, "money": (3, "EUR"), "carts": ("c1", None)}
    for name, row in rows.items():
        body, found = tables.body_and_back(script, row, name)
        assert found == row
        assert body[:5] == b"\0" + ids[name].to_bytes(4, "big")
        if name == "money":
            peer = message(descriptor(MONEY), "shop.Money")
            peer.ParseFromString(body[6:])
            assert (body[5], peer.units, peer.currency) == (0, 3, "EUR")
    assert [registry.versions(f"{name}-value") for name in ids] == [[1]] * 3, "nothing is registered anew"
    for name, reason in {
        "text": "the registry does not give the schema of text-value as a descriptor",
        "union": tables.UNFIT["union"][1],
    }.items():
        with pytest.raises(SqlError) as caught:
            script.run(f"CREATE VIEW v AS SELECT * FROM `{name}`")
        assert caught.value.message.startswith(f"{name} cannot be used: {reason}")


@pytest.mark.parametrize("path", ["", "/apis", "/apis/ccompat/v7/none", "/apis/registry/v2"])
def test_a_url_that_is_not_the_apis_is_reported(apicurio: Apicurio, path: str) -> None:
    registry = RestRegistry(apicurio.url.replace("/apis/ccompat/v7", path), retries=0)
    with pytest.raises(SchemaRegistryError, match="is url= that of the API") as caught:
        registry.by_id(1)
    assert not isinstance(caught.value, (UnknownSchema, RegistryUnavailable))
    registry.close()


def test_another_process_sees_what_was_registered(registry: RestRegistry, apicurio: Apicurio) -> None:
    schema_id = registry.register("orders", ORDER)
    other = RestRegistry(apicurio.url)
    assert other.by_id(schema_id) == ORDER
    assert other.by_version("orders") == RegisteredSchema("orders", 1, schema_id, ORDER)
    other.close()


def test_a_registry_goes_down_and_comes_back(registry: RestRegistry, apicurio: Apicurio) -> None:
    registry = replace(registry, timeout_s=1.0, retries=1, latest_ttl_s=0.0)
    first = registry.register("orders", ORDER)
    second = registry.register("orders", ORDER_2)
    assert registry.by_id(first) == ORDER
    assert registry.by_version("orders").version == 2

    apicurio.pause()  # as a network that swallows everything
    with pytest.raises(RegistryUnavailable, match=r"\(2 tries\): .*[Tt]ime"):
        registry.subjects()
    apicurio.resume()
    assert registry.subjects() == ["orders"]

    apicurio.kill()
    assert registry.by_id(first) == ORDER
    assert registry.by_version("orders") == RegisteredSchema("orders", 2, second, ORDER_2)
    assert registry.register("orders", ORDER) == first
    for ask in (
        lambda: registry.by_id(second + 1),
        lambda: registry.by_version("orders", 1),
        lambda: registry.register("orders", PRICE),
        RestRegistry(apicurio.url, retries=0).subjects,  # down at the start
    ):
        with pytest.raises(RegistryUnavailable, match=f"schema registry {apicurio.url} .*Is it running") as caught:
            ask()
        assert caught.value.retriable

    apicurio.start()  # with nothing that it had
    with pytest.raises(UnknownSchema):
        registry.by_version("orders", 1)
    assert registry.by_id(first) == ORDER
    assert registry.register("prices", PRICE) == 1
    assert registry.by_version("prices").schema == PRICE
    registry.close()
