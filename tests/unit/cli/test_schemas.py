"""`rmqio schemas` over folders of schemas, those of `schemas/` among them."""

from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer

from rmqio.cli.main import main
from rmqio.serde.avro.compatibility import Level, check

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"
ORDERS = ("order.v1", "order.v2")


ID, TOTAL = {"name": "id", "type": "string"}, {"name": "total", "type": "int"}


def write(folder: Path, name: str, *fields: dict[str, Any], type_name: str = "shop.Order") -> None:
    schema = {"type": "record", "name": type_name, "fields": list(fields)}
    (folder / f"{name}.avsc").write_text(json.dumps(schema))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three versions of `order`, each of which reads the one before it, and the third not the first."""
    write(tmp_path, "order.v1", ID)
    write(tmp_path, "order.v2", ID, {**TOTAL, "default": 0})
    write(tmp_path, "order.v10", ID, TOTAL)
    write(tmp_path, "shop.customer.v1", ID, type_name="Customer")
    return tmp_path


GOOD = "4 schemas of 2 subjects: {}\n"
BAD = "order v10 cannot read v1: Order.total: the writer has no such field, and the reader no default for it\n"


@pytest.mark.parametrize(
    ("level", "status", "output"),
    [
        (None, 1, BAD),
        ("backward_transitive", 1, BAD),
        ("BACKWARD", 0, GOOD.format("backward")),
        ("forward_transitive", 0, GOOD.format("forward_transitive")),
        ("full", 0, GOOD.format("full")),
        ("full_transitive", 1, BAD),
        ("none", 0, GOOD.format("none")),
    ],
)
def test_each_version_is_compared_with_those_before_it(
    folder: Path, capsys: pytest.CaptureFixture[str], level: str | None, status: int, output: str
) -> None:
    options = [] if level is None else [f"--level={level}"]
    assert main(["schemas", "check", *options, str(folder)]) == status
    assert capsys.readouterr() == (output, "")


def test_every_difference_has_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "order.v11", {**ID, "type": "int"}, {**TOTAL, "type": "string"})
    assert main(["schemas", "check", "--level", "backward", str(folder)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "order v11 cannot read v10: Order.id: the reader has int, the writer string",
        "order v11 cannot read v10: Order.total: the reader has string, the writer int",
    ]


def test_list_tells_name_and_fingerprint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The fingerprint of "int" is known from Avro's own tests (7275d51a3f395c8f); printed as the header has its bytes.
    (folder / "number.v1.avsc").write_text('{"type": "int", "doc": "not in the canonical form"}')
    assert main(["schemas", "list", str(folder)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in rows] == [
        ["number", "v1", "int"],
        ["order", "v1", "shop.Order"],
        ["order", "v2", "shop.Order"],
        ["order", "v10", "shop.Order"],
        ["shop.customer", "v1", "Customer"],
    ]
    assert rows[0][3] == bytes.fromhex("7275d51a3f395c8f")[::-1].hex()
    fingerprints = {row[3] for row in rows}
    assert len(fingerprints) == 4, "v2 and v10 differ in a default alone, which fingerprints leave out"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("order.v3.avsc", "{", "order.v3.avsc"),
        ("order.v3.avsc", "7", "order.v3.avsc"),
        ("order.v3.avsc", '{"type": "record", "name": "Order"', "order.v3.avsc"),
        ("order.v3.avsc", '"integer"', "order.v3.avsc: no Avro schema: UnknownType: integer"),
        ("order.v3.avsc", '{"type": "enum", "name": "E"}', "order.v3.avsc: no Avro schema: KeyError: 'symbols'"),
        ("order.avsc", '"int"', "order.avsc"),
    ],
)
@pytest.mark.parametrize("command", ["check", "list"])
def test_a_file_that_is_no_schema_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, content: str, message: str
) -> None:
    (folder / name).write_text(content)
    assert main(["schemas", command, str(folder)]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("rmqio schemas: ")
    assert message in errors


def test_a_folder_without_schemas_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schemas", "check", str(tmp_path)]) == 2
    assert f"{tmp_path} holds no file SUBJECT.vN.avsc" in capsys.readouterr().err
    assert main(["schemas", "check", str(tmp_path / "missing")]) == 2
    assert str(tmp_path / "missing") in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["checks"], ["check", "--level=sideways"], ["check", "a", "b"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert main(["schemas", *arguments]) == 2


def test_without_fastavro_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro.schema", None)  # so that importing it fails
    assert main(["schemas", "check", str(SCHEMAS)]) == 2
    assert "pip install 'rmqio[avro]'" in capsys.readouterr().err


# ---- the schemas of the programs ----


def test_the_schemas_of_the_programs_can_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schemas", "check", str(SCHEMAS)]) == 0
    assert capsys.readouterr().out.endswith(": backward_transitive\n")


def load(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.avsc").read_text())


def test_the_second_version_of_the_order_reads_the_first() -> None:
    v1, v2 = load("order.v1"), load("order.v2")
    assert check(v2, [v1], Level.BACKWARD) == []
    assert [path for path, _ in check(v2, [v1], Level.FORWARD)] == [
        "v1 cannot read v2: Order.lines[].quantity",
        "v1 cannot read v2: Order.customer",
    ]
    line = {"sku": "A-1", "quantity": 2, "price": Decimal("9.95")}
    order = {"order_id": "1", "customer": "c", "amount": Decimal("19.90"), "created": 0, "status": "PAID"}
    body = io.BytesIO()
    schemaless_writer(body, v1, {**order, "lines": [line]})
    body.seek(0)
    read: Any = schemaless_reader(body, v1, v2)
    assert {name: read[name] for name in ("customer_id", "status", "note", "lines")} == {
        "customer_id": "c",
        "status": "PAID",
        "note": None,
        "lines": [line],
    }
    assert read["amount"] == Decimal("19.90")


def test_a_status_that_the_first_version_does_not_know_is_unknown_to_it() -> None:
    status = [next(field["type"] for field in load(name)["fields"] if field["name"] == "status") for name in ORDERS]
    body = io.BytesIO()
    schemaless_writer(body, status[1], "RETURNED")
    body.seek(0)
    assert schemaless_reader(body, status[1], status[0]) == "UNKNOWN"


def test_a_schema_that_no_serializer_takes_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = {"type": "long", "logicalType": "timestamp-nanos"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    (tmp_path / "late.v1.avsc").write_text(json.dumps(schema))
    assert main(["schemas", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("late v1 cannot be read or written here: has a timestamp-nanos")
