"""JSON bodies and elements that must fit a JSON Schema."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jsonschema_rs", reason="JSON Schemas need the extra 'json-schema'")

from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message
from rmqio.serde import JsonDeserializer, JsonSerializer
from rmqio.serde.json import MAX_DEPTH, JsonSchema
from tests.helpers.transforms.records import record_of

LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"},
        "count": {"type": "integer", "minimum": 1},
    },
    "required": ["sku", "count"],
    "additionalProperties": False,
}
ORDER: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "a/b~c": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 3},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "since": {"type": "string", "format": "date"},
        "state": {"enum": ["new", "sent"]},
        "gone": False,
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["id"],
    "propertyNames": {"maxLength": 12},
    "unevaluatedProperties": False,
    "$defs": {"line": LINE},
}
DRAFT = "http://json-schema.org/draft-0{}/schema#"
DEEP = "[" * 2 * MAX_DEPTH + "]" * 2 * MAX_DEPTH


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


# ---- what fits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "element"),
    [
        (ORDER, {"id": 1}),
        (ORDER, {"id": 1.0, "a/b~c": "浙", "lines": [{"sku": "ABC-1", "count": 10**30}], "prices": {"x": 1, "y": 2.5}}),
        (ORDER, {"id": 1, "since": "not a date"}),
        ({"$schema": DRAFT.format(4), "format": "date"}, "not a date"),
        ({"$schema": DRAFT.format(7), "format": "date"}, "not a date"),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "format": "date"}, "not a date"),
        ({"contentEncoding": "base64"}, "%"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"]),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "string"}),
        ({"$ref": "#"}, 1),
        ({"type": "array", "items": {"$ref": "#"}}, nested(200)),
        ({"type": "string", "minLength": 1, "maxLength": 1}, "😀"),
        ({}, [{}] * 2 * MAX_DEPTH),  # many brackets, and no depth
        ({}, "[" * 2 * MAX_DEPTH),
        ("true", 1),
    ],
    ids=lambda each: None,
)
def test_what_fits_passes_both_ways_unchanged(schema: Any, element: object) -> None:
    message = JsonSerializer(schema=schema)(element)
    assert message == JsonSerializer()(element)
    assert JsonDeserializer(schema=schema)(record_of(message.body)) == element


def test_keys_and_tags_are_still_taken() -> None:
    serializer = JsonSerializer(key_fields=("id",), tag_field="state", schema=ORDER)
    assert serializer({"id": 1, "state": "new"}) == Message(b'{"id":1,"state":"new"}', keys=("1",), tags="new")


# ---- what does not --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "element", "why"),
    [
        (ORDER, {"id": "CANARY"}, "/id does not fit /properties/id/type of the JSON Schema"),
        (ORDER, {}, "the value does not fit /required of the JSON Schema: 'id' is missing"),
        (ORDER, ["CANARY"], "the value does not fit /type of the JSON Schema"),
        (ORDER, {"id": 1, "a/b~c": 5}, "/a~1b~0c does not fit /properties/a~1b~0c/type of"),
        (ORDER, {"id": 1, "lines": [{"sku": "A-1"}]}, "/lines/0 does not fit /$defs/line/required of the JSON Schema"),
        (
            ORDER,
            {"id": 1, "lines": [{"sku": "ABC-1", "count": 1}, {"sku": "CANARY", "count": 1}]},
            "/lines/1/sku does not fit /$defs/line/properties/sku/pattern of",
        ),
        (ORDER, {"id": 1, "lines": [{"sku": "ABC-1", "count": 0}]}, "/0/count does not fit /$defs/line/properties"),
        (
            ORDER,
            {"id": 1, "lines": [{"sku": "ABC-1", "count": 1, "CANARY": 1}]},
            "/lines/0 does not fit /$defs/line/additionalProperties of",
        ),
        (ORDER, {"id": 1, "lines": [1, 2, 3, 4]}, "/lines does not fit /properties/lines/maxItems of"),
        # A name of a map is content.
        (ORDER, {"id": 1, "prices": {"CANARY": "x"}}, "/prices/* does not fit /properties/prices/additionalPr"),
        (ORDER, {"id": 1, "state": "CANARY"}, "/state does not fit /properties/state/enum of"),
        (ORDER, {"id": 1, "gone": "CANARY"}, "/gone does not fit /properties/gone of"),
        (ORDER, {"id": 1, "either": ["CANARY"]}, "/either does not fit /properties/either/oneOf of"),
        (ORDER, {"id": 1, "CANARY": 1}, "the value does not fit /unevaluatedProperties of"),
        (ORDER, {"id": 1, "CANARY_CANARY": 1}, "the value does not fit /propertyNames/maxLength of"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": "CANARY"}, "not fit /dependentRequired of the JSON Schema: 'b' is"),
        ({"prefixItems": [{"const": 1}]}, ["CANARY"], "/0 does not fit /prefixItems/0/const of"),
        ({"not": {"type": "string"}}, "CANARY", "the value does not fit /not of"),
        ("false", "CANARY", "the value does not fit false of"),
        ({"$schema": DRAFT.format(4), "minimum": 1, "exclusiveMinimum": True}, 1, "does not fit /exclusiveMinimum of"),
        ({"$schema": DRAFT.format(7), "contentEncoding": "base64"}, "CANARY%", "does not fit /contentEncoding of"),
        ({"pattern": "^(?=C)(a|aa|C)+\\1$"}, "C" + "a" * 3000 + "CANARY", "does not fit /pattern of"),
        ({"const": "x"}, nested(500), "nested too deeply for a check"),
        ({"items": {"$ref": "#"}, "type": "array"}, [nested(300), "CANARY"], "/1 does not fit /type of"),
    ],
    ids=lambda each: None,
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_its_place_and_not_quoted(schema: Any, element: object, why: str) -> None:
    for refuse in (
        lambda: JsonSerializer(schema=schema)(element),
        lambda: JsonDeserializer(schema=schema)(record_of(json.dumps(element).encode())),
    ):
        with pytest.raises(SerdeError) as caught:
            refuse()
        assert why in str(caught.value)
        assert "CANARY" not in str(caught.value)
        # The library's error quotes the value, and tracebacks are logged.
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


def test_a_lone_surrogate_that_the_schema_looks_at_is_refused() -> None:
    with pytest.raises(SerdeError, match="contains a lone surrogate"):
        JsonDeserializer(schema={"type": "string", "maxLength": 3})(record_of(b'"CANARY\\ud800"'))


def test_what_is_sent_is_what_is_checked() -> None:
    """Names that are numbers become text, and tuples arrays."""
    schema = {"propertyNames": {"pattern": "^[0-9]+$"}, "additionalProperties": {"type": "array"}}
    assert JsonSerializer(schema=schema)({1: (2,)}).body == b'{"1":[2]}'


def test_what_would_take_the_process_down_is_refused() -> None:
    """The library recurses without a limit; Python's parser has one, which depends on its version and can be raised."""
    schema = JsonSchema({"items": {"$ref": "#"}})
    assert schema.violation(nested(MAX_DEPTH), DEEP) is None
    assert schema.violation([nested(MAX_DEPTH), []], DEEP) == (
        "nested deeper than 1000 levels, which is too deep for a check against the JSON Schema"
    )
    mixed: Any = {}
    for _ in range(MAX_DEPTH):
        mixed = {"a": [mixed]}
    assert "nested deeper" in str(schema.violation(mixed, json.dumps({"[": "[{" * 2 * MAX_DEPTH})))


def test_a_long_path_is_cut() -> None:
    value: Any = "CANARY"
    for _ in range(90):
        value = {"a_rather_long_name": value}
    schema = {"properties": {"a_rather_long_name": {"$ref": "#"}}, "type": "object"}
    with pytest.raises(SerdeError, match=r"a_rather_long_name\.* does not fit|\.\.\. does not fit") as caught:
        JsonDeserializer(schema=schema)(record_of(json.dumps(value).encode()))
    assert len(str(caught.value)) < 500


# ---- schemas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [JsonDeserializer, JsonSerializer])
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "int"}, 'the given dict is not a valid JSON Schema: at /type: "int" is not valid'),
        ({"properties": {"a/b": {"required": "x"}}}, 'at /properties/a~1b/required: "x" is not of type "array"'),
        ({"properties": {"a": {"pattern": "("}}}, 'at /properties/a/pattern: "(" is not a "regex"'),
        ('{"minimum": "x"}', "the given text is not a valid JSON Schema: at /minimum"),
        ("[]", "at its root: [] is not of types"),
        ("{", "the given text is neither JSON nor the path of a .json file: Expecting property name"),
        ("order", "the given text is neither JSON nor the path"),
        ("no/such/order.json", "the JSON Schema's file no/such/order.json cannot be read"),
        (Path("no/such"), "the JSON Schema's file no/such cannot be read"),
        (5, "a JSON Schema is a dict, JSON text or the path of a .json file, not int"),
        (True, "not bool"),
        ({"enum": [{1, 2}]}, "the given JSON Schema cannot be converted to JSON: Object of type set"),
        ({"const": float("nan")}, "the given JSON Schema cannot be converted to JSON"),
        ({"const": nested(500)}, "the given dict is not a JSON Schema that can be compiled"),
        ("[" * 100_000, "the given text is neither JSON"),
        ({"const": "\ud800"}, "the given dict is not a JSON Schema that can be compiled"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "draft-03/schema"),
        ({"$schema": "urn:other"}, "Unknown meta-schema: 'urn:other'"),
        ({"$ref": "#/$defs/no"}, "Pointer '/$defs/no' does not exist"),
        ({"$ref": "http://example.invalid/x.json"}, "http://example.invalid/x.json; nothing is fetched: a $ref"),
        ({"properties": {"a": {"$ref": "line.json"}}}, "'line.json' is not present"),
        ({"$id": "https://example.invalid/order", "$ref": "line"}, "https://example.invalid/line; nothing is fetched"),
        ({"$dynamicRef": "https://example.invalid/x"}, "nothing is fetched"),
    ],
    ids=lambda each: None,
)  # fmt: skip
def test_no_schema_fails_in_the_constructor(make: Any, schema: Any, why: str) -> None:
    with pytest.raises(LocalError) as caught:
        make(schema=schema)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_nothing_is_fetched_from_network_or_disk(tmp_path: Path) -> None:
    (tmp_path / "line.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for uri in (f"http://127.0.0.1:{port}/line.json", (tmp_path / "line.json").as_uri()):
            with pytest.raises(LocalError, match="nothing is fetched"):
                JsonSchema({"$ref": uri})
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_schema_is_the_same_from_a_dict_text_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(ORDER, indent=2), "utf-8-sig")
    sources: list[Any] = [
        ORDER, dict(reversed(ORDER.items())), json.dumps(ORDER), path, str(path), JsonSchema(ORDER),
    ]  # fmt: skip
    made = {make(schema=each) for each in sources for make in (JsonDeserializer, JsonSerializer)}
    assert len(made) == 2
    assert JsonDeserializer(schema=ORDER) != JsonDeserializer(schema={**ORDER, "title": "Other"})
    assert JsonDeserializer(schema=ORDER) != JsonDeserializer()


def test_the_callers_dict_may_change_afterwards() -> None:
    schema = copy.deepcopy(ORDER)
    deserializer = JsonDeserializer(schema=schema)
    schema["required"] = ["other"]
    schema["properties"]["id"]["type"] = "string"
    assert deserializer(record_of(b'{"id": 1}')) == {"id": 1}
    assert deserializer == JsonDeserializer(schema=ORDER)


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (ORDER, "JsonSchema(Order)"),
        ({"$id": "urn:order", "title": "Order"}, "JsonSchema(urn:order)"),
        ({"enum": ["x" * 10_000]}, "JsonSchema(10013 characters)"),
        ({"title": "x" * 10_000}, f"JsonSchema({'x' * 200}...)"),
    ],
    ids=lambda each: None,
)
def test_a_large_schema_is_not_dumped(schema: Any, shown: str) -> None:
    assert repr(JsonSchema(schema)) == shown
    assert shown in repr(JsonSerializer(schema=schema))


def test_a_pickle_holds_the_text_alone_and_works() -> None:
    deserializer = JsonDeserializer(dict, schema=ORDER)
    deserializer(record_of(b'{"id": 1}'))
    pickled = pickle.dumps(deserializer)
    assert b"jsonschema_rs" not in pickled
    copied = pickle.loads(pickled)
    assert copied == dataclasses.replace(deserializer) == copy.deepcopy(deserializer) == deserializer
    with pytest.raises(SerdeError, match="/id does not fit"):
        copied(record_of(b'{"id": "x"}'))


# ---- the library ----------------------------------------------------------------------------------------------------


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(JsonDeserializer(schema=ORDER))
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)  # an import of it then fails
    assert JsonDeserializer()(record_of(b"1")) == 1
    needs = r"JSON Schemas need jsonschema-rs: pip install 'rmqio\[json-schema\]'"
    with pytest.raises(LocalError, match=needs):
        JsonSerializer(schema=ORDER)
    with pytest.raises(LocalError, match=needs):
        pickle.loads(pickled)  # a worker without it


def test_the_library_is_imported_when_a_schema_is_given() -> None:
    program = (
        "import sys; from rmqio.serde.json import JsonDeserializer; JsonDeserializer()\n"
        "before = 'jsonschema_rs' in sys.modules; JsonDeserializer(schema={})\n"
        "print(before, 'jsonschema_rs' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["False", "True"]
