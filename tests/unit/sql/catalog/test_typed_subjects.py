"""Subjects with JSON Schemas and Protobuf are tables; what is written has the id of the subject's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from rmqio import Record
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, ToRows, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.planning.plan import Field
from rmqio.sql.scripts.catalog_file import load_catalogs
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax import nodes
from tests.helpers.serde.registry_server import Server, serving
from tests.helpers.serde.typed_registry import TypedSchemas
from tests.unit.sql.formats.protobufs import MONEY, OLD, ORDER, descriptor, message, of_file

NULL = {"type": "null"}
ORDERS = {
    "type": "object",
    "required": ["id", "amount", "lines"],
    "properties": {
        "id": {"type": "integer"},
        "small": {"oneOf": [NULL, {"type": "integer", "connect.type": "int32"}]},
        "amount": {"type": "number"},
        "note": {"type": ["string", "null"], "format": "date-time"},
        "status": {"enum": ["NEW", "PAID", None]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "tags": {"type": ["object", "null"], "additionalProperties": {"type": "boolean"}},
    },
    "definitions": {"line": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}},
}
COLUMNS = {
    "id": "BIGINT NOT NULL", "small": "INT", "amount": "DOUBLE NOT NULL", "note": "STRING", "status": "STRING",
    "lines": "ARRAY<ROW<n BIGINT>> NOT NULL", "tags": "MAP<STRING, BOOLEAN>",
}  # fmt: skip
ROW = (1, None, 0.5, "x", None, [(2,)], {"k": True})


def of(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


UNFIT = {
    "union": (of(x={"type": ["integer", "string"]}), "its field x: a union of integer, string is not a type of SQL"),
    "anything": (of(x=True), "its field x: a schema that allows everything is not a type of SQL"),
    "untyped": (of(x={"minimum": 3}), "its field x: a schema without a type is not a type of SQL"),
    "text": ('{"type": "string"}', "its schema is not an object with properties"),
    "broken": ("{", "its schema is not valid: JSONDecodeError"),
    "tree": (of(next={"$ref": "#"}), "its field next: the schema # contains itself"),
    "elsewhere": (of(x={"$ref": "other.json"}), "its field x: it refers to another schema, other.json"),
    "nowhere": (of(x={"$ref": "#/$defs/x"}), "its field x: it refers to #/$defs/x, which is not there"),
    "tuple": (of(x={"type": "array", "prefixItems": [NULL]}), "its field x: an array of more than one type"),
    "hollow": (of(x={"type": "object"}), "its field x: an object without properties is not a type of SQL"),
    "number": (of(x={"oneOf": 5}), "its schema is not valid: TypeError"),
    "object": (of(x={"type": {"a": 1}}), "its schema is not valid: TypeError"),
    "all": (of(x={"allOf": [NULL, NULL]}), "its field x: allOf of several schemas is not a type of SQL"),
}  # fmt: skip


class Made(NamedTuple):
    schemas: TypedSchemas
    server: Server


@pytest.fixture
def made() -> Iterator[Made]:
    schemas = TypedSchemas()
    with serving(schemas.handle) as server:
        yield Made(schemas, server)


def script_of(made: Made) -> Script:
    script = Script()
    load_catalogs(script, [made.server.url])
    return script


def body_and_back(script: Script, row: tuple[Any, ...], name: str = "orders") -> tuple[bytes, tuple[Any, ...]]:
    table = script.catalog.table(nodes.Name(name))
    fields = tuple(Field(each.name, each.type) for each in table.columns)
    written = compiled(Fragment(FromRows(fields), (), ToTable(table, table.columns)))([row])
    assert not written.failed, written.failed
    (body,) = written.values
    return body, read(script, body, name)


def read(script: Script, body: bytes, name: str = "orders") -> tuple[Any, ...]:
    table = script.catalog.table(nodes.Name(name))
    found = compiled(Fragment(FromTable(table, table.columns), (), ToRows()))([_record(body)])
    if found.failed:
        raise found.failed[0]
    (row,) = found.values
    assert isinstance(row, tuple)
    return row


def _record(body: bytes) -> Record:
    return SimpleNamespace(body=body)  # type: ignore[return-value]


def columns_of(script: Script, name: str = "orders") -> dict[str, str]:
    return {each.name: str(each.type) for each in script.catalog.table(nodes.Name(name)).columns}


def test_a_json_schema_is_a_table(made: Made) -> None:
    number = made.schemas.register("orders-value", json.dumps(ORDERS), "JSON")
    script = script_of(made)
    assert columns_of(script) == COLUMNS
    body, row = body_and_back(script, ROW)
    assert row == ROW
    assert body[:5] == b"\0" + number.to_bytes(4, "big")
    assert json.loads(body[5:]) == {"id": 1, "small": None, "amount": 0.5, "note": "x", "status": None,
                                    "lines": [{"n": 2}], "tags": {"k": True}}  # fmt: skip
    assert len(made.schemas.subjects["orders-value"]) == 1
    assert read(script, b'\0\0\0\0\x09{"id": 1, "amount": 1, "lines": []}') == (1, None, 1.0, None, None, [], None)
    again = Script()
    again.run(script.catalog.further.text("orders"))  # type: ignore[union-attr]
    assert again.catalog.tables["orders"].columns == script.catalog.table(nodes.Name("orders")).columns


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"id": 1}', "it begins with 7b, and not 00: plain JSON is the format 'json'"),
        (b"\0\0\0", "the body is not JSON of a registry: it is too short"),
        (b"\0\0\0\0\x01[]", "the body is not a JSON object"),
        (b"\0\0\0\0\x01{}", "column id: it is NOT NULL, but the field is missing"),
    ],
)
def test_a_bad_body_says_why(made: Made, body: bytes, reason: str) -> None:
    made.schemas.register("orders-value", json.dumps(ORDERS), "JSON")
    with pytest.raises(Exception, match=reason):
        read(script_of(made), body)


def test_null_is_left_out_where_the_schema_has_no_null(made: Made) -> None:
    made.schemas.register("orders-value", of(a={"type": "integer"}, b={"type": "string"}), "JSON")
    body, row = body_and_back(script_of(made), (None, "x"))
    assert (body[5:], row) == (b'{"b":"x"}', (None, "x"))


def test_a_schema_with_both_kinds_of_null_is_only_read(made: Made) -> None:
    both = {**json.loads(of(a={"type": ["integer", "null"]}, b={"type": "string"})), "required": ["a"]}
    made.schemas.register("orders-value", json.dumps(both), "JSON")
    script = script_of(made)
    assert read(script, b'\0\0\0\0\x01{"a": null}') == (None, None)
    with pytest.raises(
        SqlError, match="orders cannot be written: its field a must be there and can be null, and its f"
    ):
        script.run("INSERT INTO orders SELECT a, b FROM orders")


@pytest.mark.parametrize("name", UNFIT)
def test_a_json_schema_that_is_no_table_says_why(made: Made, name: str) -> None:
    made.schemas.register(f"{name}-value", UNFIT[name][0], "JSON")
    with pytest.raises(SqlError) as caught:
        script_of(made).run(f"CREATE VIEW v AS SELECT * FROM `{name}`")
    assert caught.value.message.startswith(f"{name} cannot be used: {UNFIT[name][1]}")


def test_a_table_without_a_schema_registers_what_its_columns_are(made: Made) -> None:
    script = Script()
    script.run(
        "CREATE TABLE orders (id BIGINT NOT NULL, at TIMESTAMP(3), x ARRAY<INT>, m MAP<STRING, ROW<n DOUBLE>>) WITH "
        f"('topic' = 'orders', 'format' = 'json-confluent', 'json-confluent.url' = '{made.server.url}')"
    )
    body, row = body_and_back(script, (1, 1000, [1, None], {"k": (0.5,)}))
    assert row == (1, 1000, [1, None], {"k": (0.5,)})
    (registered,) = made.schemas.subjects["orders-value"]
    assert registered["schemaType"] == "JSON"
    assert body[1:5] == registered["id"].to_bytes(4, "big")
    assert columns_of(script_of(made)) == {
        "id": "BIGINT NOT NULL", "at": "STRING", "x": "ARRAY<INT>", "m": "MAP<STRING, ROW<n DOUBLE>>",
    }  # fmt: skip
    jsonschema = pytest.importorskip("jsonschema_rs", reason="JSON Schema needs the extra 'json-schema'")
    assert jsonschema.is_valid(json.loads(registered["schema"]), json.loads(body[5:]))


def money(made: Made) -> None:
    made.schemas.register("money", of_file(MONEY), "PROTOBUF")
    reference = {"name": "shop/money.proto", "subject": "money", "version": 1}
    made.schemas.register("orders-value", of_file(ORDER), "PROTOBUF", [reference])


def test_a_message_of_protobuf_is_a_table_with_what_it_imports(made: Made) -> None:
    money(made)
    script = script_of(made)
    assert {name: columns_of(script)[name] for name in ("id", "at", "total")} == {
        "id": "BIGINT NOT NULL", "at": "TIMESTAMP_LTZ(6)", "total": "ROW<units BIGINT, currency STRING>",
    }  # fmt: skip
    columns = script.catalog.table(nodes.Name("orders")).columns
    given = {"id": 7, "status": "PAID", "total": (3, "EUR")}
    row = tuple(given.get(each.name) for each in columns)
    body, found = body_and_back(script, row)
    number = made.schemas.subjects["orders-value"][0]["id"]
    assert body[:6] == b"\0" + number.to_bytes(4, "big") + b"\0"
    peer = message(descriptor(MONEY, ORDER), "shop.Order")
    peer.ParseFromString(body[6:])
    assert (peer.id, peer.status, peer.total.currency) == (7, 1, "EUR")
    assert dict(zip(columns_of(script), found, strict=True))["total"] == (3, "EUR")
    assert len(made.schemas.subjects["orders-value"]) == 1, "the schema is there, and is not registered again"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\0\0\0\0\x01\x02\x02\x08\x05", "the body is message 1 of its schema, but the table's is 0"),
        (b"\0\0\0\0\x01\x04\x00\x02", r"the body is message 0\.1 of its schema"),
        (b"\0\0\0\0\x01", "does not say which message it is"),
        (b"\0\0\0\0\x01\xff\xff", "does not say which message it is"),
        (b"\x08\x05", "it begins with 08, and not 00"),
        (b"\0\0\0\0\x01\0\xff\xff", "the body is not Protobuf of shop.Order"),
    ],
)
def test_another_message_of_the_schema_is_a_bad_row(made: Made, body: bytes, reason: str) -> None:
    money(made)
    with pytest.raises(Exception, match=reason):
        read(script_of(made), body)


def test_a_nested_message_has_its_place_in_its_head(made: Made) -> None:
    script = Script()
    script.run(
        f"CREATE TABLE orders (n INT) WITH ('topic' = 't', 'format' = 'protobuf-confluent', 'protobuf-confluent.url' = "
        f"'{made.server.url}', 'protobuf-confluent.descriptor' = '{descriptor(NESTED)}', "
        "'protobuf-confluent.message-name' = 'Outer.Inner')"
    )
    body, row = body_and_back(script, (5,))
    assert (body, row) == (b"\0\0\0\0\x01\x04\x02\x00\x08\x05", (5,))
    (registered,) = made.schemas.subjects["t-value"]
    assert (registered["schemaType"], registered["schema"]) == ("PROTOBUF", of_file(NESTED))


def test_a_schema_that_the_registry_gives_as_text_is_not_compared(made: Made) -> None:
    made.schemas.register("t-value", 'syntax = "proto3"; message A {}', "PROTOBUF")
    script = Script()
    script.run(
        "CREATE TABLE orders (n INT) WITH ('topic' = 't', 'format' = 'protobuf-confluent', 'protobuf-confluent.url' = "
        f"'{made.server.url}', 'protobuf-confluent.descriptor' = '{descriptor(NESTED)}', "
        "'protobuf-confluent.message-name' = 'Outer.Inner')"
    )
    with pytest.raises(Refusal, match=r"does not give the schema of t-value as a descriptor \(format=serialized\)"):
        body_and_back(script, (5,))


NESTED = """
name: "n.proto" syntax: "proto3" message_type { name: "First" }
message_type { name: "Outer" nested_type { name: "Inner"
  field { name: "n" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } } }
"""


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            'syntax = "proto3"; message A {}',
            r"does not give the schema of orders-value as a descriptor \(format=serial",
        ),
        (of_file('name: "e.proto"'), "its schema has no message"),
        (of_file(ORDER), "its schema cannot be used: its files do not fit together"),
        (of_file(OLD.replace("Old", "First").replace('name: "First"', 'name: "Old"', 1)), None),
    ],
)
def test_a_schema_of_protobuf_that_is_no_table_says_why(made: Made, schema: str, reason: str | None) -> None:
    made.schemas.register("orders-value", schema, "PROTOBUF")
    script = script_of(made)
    if reason is None:
        assert list(columns_of(script)) == ["must", "may"]
        return
    with pytest.raises(SqlError, match=reason):
        script.run("CREATE VIEW v AS SELECT * FROM orders")


def test_another_type_of_schema_is_refused_by_name(made: Made) -> None:
    made.schemas.register("orders-value", "<xsd/>", "XML")
    with pytest.raises(SqlError, match="its schema is of the type XML, and tables are of AVRO, JSON, PROTOBUF"):
        script_of(made).run("CREATE VIEW v AS SELECT * FROM orders")
