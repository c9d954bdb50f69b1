"""The column `value` of the format `rocketmq`: its options, its type, and what a task makes of them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")
pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampNTZType, _parse_datatype_json_string

from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.pyspark.columns import (
    COLUMNS,
    PASSWORD_VARIABLE,
    SOURCE_SCHEMA,
    USER_VARIABLE,
    VALUE_NAMES,
    Values,
    _registry,
    checked_names,
    to_batch,
    value_options,
)
from rmqio.pyspark.source import RocketMQDataSource
from rmqio.serde.avro import AvroSerializer
from rmqio.serde.registry import BasicAuth, FolderRegistry, RestRegistry, UnknownSchema
from tests.helpers.transforms.records import record_of

MINIMAL = {"nameserver": "127.0.0.1:9876", "subscribe": "t"}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


FLAT = record(a="long", b=["null", "string"])
FLAT_TYPE = "struct<a:bigint,b:string>"


def source(**options: Any) -> RocketMQDataSource:
    """As Spark makes it."""
    given = {"valueFormat": "avro", "valueSchema": json.dumps(FLAT)} | options
    return RocketMQDataSource(MINIMAL | {name.lower(): value for name, value in given.items() if value is not None})


def values(schema: Any = FLAT, **options: str) -> Values:
    found = value_options({"valueFormat": "avro", "valueSchema": json.dumps(schema)} | options)
    assert found is not None
    return Values(found)


# ---- options --------------------------------------------------------------------------------------------------------

CONFLUENT = {"valueFraming": "confluent"}
URL = "http://127.0.0.1:1/apis"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"valueFormat": "json"}, "valueFormat is 'json'; it must be one of avro"),
        ({"valueFormat": None}, "valueSchema has no effect without valueFormat"),
        ({"valueFormat": None, "valueSchema": None, "valueErrors": "null"}, "valueErrors has no effect without"),
        ({"valueSchema": None}, "valueFormat is avro, which needs valueSchema"),
        ({"valueErrors": "skip"}, "valueErrors is 'skip'; it must be one of fail, null"),
        ({"valueFraming": "kafka"}, "must be one of bare, single_object, confluent, container, auto"),
        ({"writerSchema": "{}", "valueFraming": "auto"}, "writerSchema is for bare bodies; auto bodies name their own"),
        (CONFLUENT, "valueFraming is confluent, which needs schemaRegistry"),
        ({"schemaRegistry": "/schemas"}, "schemaRegistry has no effect on bare bodies"),
        ({"schemaRegistry": "/schemas", "valueFraming": "container"}, "schemaRegistry has no effect on container"),
        (CONFLUENT | {"schemaRegistry": "http://me:secret@127.0.0.1:1"}, "schemaRegistry has credentials"),
        (CONFLUENT | {"schemaRegistry": "HTTP://me:sec[/secret@127.0.0.1:1"}, "schemaRegistry has credentials"),
        ({"schemaRegistry": URL, "valueFraming": "single_object"}, "cannot look up the fingerprints"),
        ({"valueSchema": "{"}, "valueSchema: the given text is neither JSON"),
        ({"valueSchema": "string"}, "valueSchema: an Arrow batch needs the schema of a record, not of string"),
        ({"valueSchema": "/no/such.avsc"}, "valueSchema: the schema's file /no/such.avsc cannot be read"),
        ({"writerSchema": "/no/such.avsc"}, "writerSchema: the schema's file /no/such.avsc cannot be read"),
        ({"valueSchema": json.dumps(record(a=["int", "string"]))}, "valueSchema: R.a: Arrow has columns of one type"),
        ({"valueSchema": json.dumps(record(a=["null", "R"]))}, "R.a: Arrow has no type for records within themselves"),
        ({"schemaRegistry": "/no/such/folder", "valueSchema": "subject"}, "of schemas cannot be read"),
        ({"schemaRegistry": "ftp://x", "valueSchema": "subject"}, "must be like https://host:port/path"),
    ],
)
def test_a_bad_option_is_named_before_anything_is_read(options: dict[str, Any], text: str) -> None:
    with pytest.raises(RmqioError) as error:  # a folder that is not there is the registry's own error
        source(**options).schema()
    assert text in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("streaming", [False, True])
def test_bad_options_are_refused_also_where_the_column_is_not_read(streaming: bool) -> None:
    made = source(valueErrors="skip")
    with pytest.raises(LocalError, match="valueErrors is 'skip'"):
        (made.streamReader if streaming else made.reader)(StructType([SOURCE_SCHEMA["body"]]))


def test_the_error_for_a_misspelled_option_names_the_right_one() -> None:
    with pytest.raises(LocalError, match="did you mean valueSchema"):
        RocketMQDataSource(MINIMAL | {"valueshema": "x"}).reader(SOURCE_SCHEMA)


def test_options_of_a_value_are_not_for_writing() -> None:
    with pytest.raises(LocalError, match=r"there is no option .* of the format rocketmq when writing"):
        RocketMQDataSource(MINIMAL | {"valueformat": "avro"}).writer(SOURCE_SCHEMA, False)


def test_without_a_format_nothing_changes() -> None:
    made = RocketMQDataSource(MINIMAL)
    assert made.schema() == SOURCE_SCHEMA
    with pytest.raises(LocalError, match=r"there is no column 'value'; .*, and value where valueFormat is given"):
        made.reader(StructType([StructField("value", FLAT_STRUCT)]))


# ---- schema and type ------------------------------------------------------------------------------------------------

FLAT_STRUCT = values().type


def test_a_schema_is_json_a_file_or_a_subject(tmp_path: Path) -> None:
    file = tmp_path / "a.avsc"
    file.write_text(json.dumps(FLAT))
    folder = tmp_path / "schemas"
    folder.mkdir()
    FolderRegistry(folder).register("subject", json.dumps(record(old="int")))
    FolderRegistry(folder).register("subject", json.dumps(FLAT))
    given: list[dict[str, str]] = [
        {"valueSchema": json.dumps(FLAT)},
        {"valueSchema": str(file)},
        {"valueSchema": "subject", "schemaRegistry": str(folder)},
        {"writerSchema": "subject", "schemaRegistry": str(folder)},
    ]
    for options in given:
        found = source(**options).schema()
        assert found.fieldNames() == [*COLUMNS, "value"]
        assert found["value"].dataType.simpleString() == FLAT_TYPE
    with pytest.raises(UnknownSchema, match="no subject 'other'"):
        source(valueSchema="other", schemaRegistry=str(folder)).schema()


def test_a_data_frame_keeps_the_schema_that_it_was_loaded_with(tmp_path: Path) -> None:
    file = tmp_path / "a.avsc"
    file.write_text(json.dumps(FLAT))
    made = source(valueSchema=str(file))
    schema = made.schema()
    file.unlink()
    reader: Any = cloudpickle.loads(cloudpickle.dumps(made)).reader(schema)
    assert reader._settings.values.type == FLAT_STRUCT


def logical(kind: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


TYPES: list[tuple[Any, str]] = [
    ("null", "void"),
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "bigint"),
    ("float", "float"),
    ("double", "double"),
    ("string", "string"),
    ("bytes", "binary"),
    ({"type": "fixed", "name": "F", "size": 2}, "binary"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
    (logical("bytes", "decimal", precision=38, scale=9), "decimal(38,9)"),
    (logical("int", "date"), "date"),
    (logical("int", "time-millis"), "int"),
    (logical("long", "time-micros"), "bigint"),
    (logical("long", "timestamp-millis"), "timestamp"),
    (logical("long", "timestamp-micros"), "timestamp"),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
    (logical("string", "uuid"), "string"),
    ({"type": "array", "items": logical("long", "timestamp-millis")}, "array<timestamp>"),
    ({"type": "map", "values": {"type": "array", "items": ["null", "int"]}}, "map<string,array<int>>"),
    (FLAT | {"name": "S"}, FLAT_TYPE),
]


@pytest.mark.parametrize(("avro", "spark"), TYPES, ids=[f"{n}-{spark}" for n, (_, spark) in enumerate(TYPES)])
def test_a_type_is_what_spark_expects_of_arrow(avro: Any, spark: str) -> None:
    found = values(record(a=avro, b=["null", "int"]))
    assert found.type.simpleString() == f"struct<a:{spark},b:int>"
    whole = StructType([StructField("value", found.type)])
    # The schema that Spark compares a batch with, in versions whose function takes other arguments
    ways: list[dict[str, Any]] = [{"timezone": "UTC"}, {}]
    for arguments in ways:
        try:
            expected = to_arrow_schema(whole, **arguments)
        except TypeError:
            continue
        break
    assert expected.equals(pa.schema([("value", found.arrow_type)]))
    assert _parse_datatype_json_string(whole.json()) == whole, "as it comes back from the JVM"


def test_what_spark_has_no_type_for_is_named() -> None:
    for kind, text in (
        (logical("bytes", "decimal", precision=39), "R.a: a decimal of 39 digits"),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            "R.a: Arrow has no type for Avro's dur",
        ),
        (logical("long", "timestamp-nanos"), "nanoseconds"),
    ):
        with pytest.raises(LocalError, match=f"valueSchema: .*{text}"):
            values(record(a=kind))


# ---- columns --------------------------------------------------------------------------------------------------------


def test_columns_are_chosen_by_name_and_exact_type() -> None:
    found = values()
    fields = [SOURCE_SCHEMA["queueOffset"], StructField("value", found.type)]
    assert checked_names(StructType(fields), found) == ("queueOffset", "value")
    wrong = StructType([StructField("value", StructType([StructField("a", TimestampNTZType())]))])
    with pytest.raises(LocalError, match=r"the column value has the type struct<a:bigint,b:string>, not struct<a:time"):
        checked_names(wrong, found)
    strict = StructType([StructField(each.name, each.dataType, each.name != "a") for each in found.type])
    with pytest.raises(LocalError, match="has the type struct<a:bigint,b:string> without NOT NULL and comments"):
        checked_names(StructType([StructField("value", strict)]), found)


def test_nothing_is_decoded_unless_the_value_is_read() -> None:
    broken = [record_of(b"\xff")]
    made = source()
    reader: Any = made.reader(StructType([SOURCE_SCHEMA["body"]]))
    assert reader._settings.values is None
    assert to_batch(broken, reader._names, reader._settings.values).to_pylist() == [{"body": b"\xff"}]
    reader = made.reader(StructType([made.schema()["value"]]))
    with pytest.raises(SerdeError, match="queue orders/broker-a/3, offset 42: body of 1 bytes does not deserialize"):
        to_batch(broken, reader._names, reader._settings.values)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_reader_travels_with_what_it_needs(streaming: bool) -> None:
    made = source(valueErrors="NULL")
    reader: Any = (made.streamReader if streaming else made.reader)(
        StructType([SOURCE_SCHEMA["body"], StructField("value", FLAT_STRUCT)])
    )
    there: Any = cloudpickle.loads(cloudpickle.dumps(reader))
    good = AvroSerializer(FLAT)({"a": 1, "b": "x"}).body
    batch = to_batch([record_of(good), record_of(b"\xff")], there._names, there._settings.values)
    assert batch.to_pylist() == [{"body": good, "value": {"a": 1, "b": "x"}}, {"body": b"\xff", "value": None}]
    assert pickle.loads(pickle.dumps(there._settings)).values.type == FLAT_STRUCT


# ---- registries and what must be installed --------------------------------------------------------------------------


def test_credentials_are_of_the_environment_and_no_pickle_holds_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (USER_VARIABLE, PASSWORD_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    plain = _registry(URL)
    assert isinstance(plain, RestRegistry)
    assert plain.auth is None
    monkeypatch.setenv(USER_VARIABLE, "me")
    monkeypatch.setenv(PASSWORD_VARIABLE, "CANARY")
    made = _registry(URL)
    assert isinstance(made, RestRegistry)
    assert isinstance(made.auth, BasicAuth)
    assert b"CANARY" not in cloudpickle.dumps(made)
    assert made.auth.header() == BasicAuth("me", "CANARY").header()
    monkeypatch.delenv(PASSWORD_VARIABLE)
    with pytest.raises(LocalError, match=f"{PASSWORD_VARIABLE} is not in that of this process"):
        made.auth.header()


class Confluent(BaseHTTPRequestHandler):
    """A registry with one schema, for who gives the password."""

    def do_GET(self) -> None:
        paths = {
            "/subjects/order/versions/latest": {"subject": "order", "version": 1, "id": 7, "schema": json.dumps(FLAT)},
            "/schemas/ids/7": {"schema": json.dumps(FLAT)},
        }
        is_let_in = self.headers["Authorization"] == BasicAuth("me", "CANARY").header()
        answer = json.dumps(paths[self.path]).encode() if is_let_in else b"{}"
        self.send_response(200 if is_let_in else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def test_subjects_and_ids_of_a_registry_behind_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER_VARIABLE, "me")
    monkeypatch.setenv(PASSWORD_VARIABLE, "CANARY")
    with ThreadingHTTPServer(("127.0.0.1", 0), Confluent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            made = source(valueSchema="order", valueFraming="confluent", schemaRegistry=url)
            reader: Any = cloudpickle.loads(cloudpickle.dumps(made.reader(StructType([made.schema()["value"]]))))
            body = b"\0\0\0\0\7" + AvroSerializer(FLAT)({"a": 1, "b": None}).body
            found = reader._settings.values
            assert found.column([record_of(body)]).to_pylist() == [{"a": 1, "b": None}]
        finally:
            server.shutdown()
            thread.join()


def test_fastavro_is_needed_for_a_value_only() -> None:
    program = (
        "import sys; sys.modules['fastavro'] = None\n"
        "from rmqio.pyspark.source import RocketMQDataSource\n"
        f"given = {MINIMAL!r}\n"
        "RocketMQDataSource(given).reader(RocketMQDataSource(given).schema())\n"
        "RocketMQDataSource(given | {'valueformat': 'avro', 'valueschema': '{}'}).schema()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "LocalError: valueFormat avro needs fastavro: pip install 'rmqio[avro,spark]'" in ended.stderr


def test_every_option_is_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pyspark.md").read_text()
    assert {name for name in (*VALUE_NAMES, USER_VARIABLE, PASSWORD_VARIABLE) if f"`{name}`" not in page} == set()
