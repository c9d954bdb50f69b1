"""Subjects of a schema registry are tables, made when they are used."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from rmqio import Record
from rmqio.serde.registry import MemoryRegistry
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, ToRows, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.planning.plan import Field
from rmqio.sql.scripts import registries
from rmqio.sql.scripts.catalog_file import file_of, load_catalogs
from rmqio.sql.scripts.registries import RegistryTables
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax import nodes
from tests.helpers.serde.open_schema_server import PREFIX, OpenSchemas
from tests.helpers.serde.registry_server import Answer, Request, Server, answer, confluent, serving
from tests.helpers.waiting import until


def record(*fields: Any, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "n", "fields": list(fields)})


def of(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


LINE = {"type": "record", "name": "Line", "fields": [of("item", "string"), of("n", "int")]}
ORDERS = record(
    of("id", "long"),
    of("customer", ["null", "string"], default=None),
    of("amount", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    of("at", {"type": "long", "logicalType": "timestamp-millis"}),
    of("day", ["null", {"type": "int", "logicalType": "date"}]),
    of("status", {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}),
    of("old", ["null", "n.Status"]),
    of("lines", {"type": "array", "items": LINE}),
    of("first", "Line"),
    of("tags", {"type": "map", "values": "string"}, default={}),
    of("order", "double"),
    of("label", {"type": "string", "logicalType": "date"}, default=""),
    of("data", {"type": "bytes", "logicalType": "decimal"}, default=""),
)  # fmt: skip
COLUMNS = {
    "id": "BIGINT NOT NULL",
    "customer": "STRING",
    "amount": "DECIMAL(10, 2) NOT NULL",
    "at": "TIMESTAMP(3) NOT NULL",
    "day": "DATE",
    "status": "STRING NOT NULL",
    "old": "STRING",
    "lines": "ARRAY<ROW<item STRING, n INT>> NOT NULL",
    "first": "ROW<item STRING, n INT> NOT NULL",
    "tags": "MAP<STRING, STRING>",
    "order": "DOUBLE NOT NULL",
    "label": "STRING",
    "data": "BYTES",
}
DECIMAL_99 = {"type": "bytes", "logicalType": "decimal", "precision": 99}
UNFIT = {
    "union-value": (record(of("x", ["int", "string"])), "its field x: a union of int, string is not a type of SQL"),
    "text-value": ('"string"', "its schema is string, and not a record with fields"),
    "tree-value": (record(of("next", ["null", "n.Order"])), "its field next: the record n.Order contains itself"),
    "empty-value": (record(of("x", {"type": "record", "name": "E", "fields": []})), "its field x: the record n.E"),
    "none-value": (record(), "its schema has no fields, and a table needs a column"),
    "precise-value": (record(of("x", DECIMAL_99)), "DECIMAL has 1 to 38 digits, not 99"),
    "n.Order-value": (record(of("x", "int")), "its subject says that the topic is n.Order, and no topic can have"),
}  # fmt: skip


class Made(NamedTuple):
    url: str
    server: Server
    open_schemas: OpenSchemas


@pytest.fixture
def confluents() -> Iterator[Made]:
    kept = MemoryRegistry()
    kept.register("orders-value", ORDERS)
    kept.register("orders-key", '"string"')
    kept.register("plain", record(of("x", "int")))
    for subject, (schema, _) in UNFIT.items():
        kept.register(subject, schema)
    with serving(confluent(kept)) as server:
        yield Made(server.url, server, OpenSchemas())


@pytest.fixture
def rocketmqs() -> Iterator[Made]:
    kept = OpenSchemas()
    kept.register("orders", ORDERS)
    with serving(kept.handle) as server:
        yield Made(server.url + PREFIX, server, kept)


def script_of(*catalogs: str) -> Script:
    script = Script()
    load_catalogs(script, catalogs)
    return script


def columns_of(script: Script, name: str) -> dict[str, str]:
    return {each.name: str(each.type) for each in script.catalog.table(nodes.Name(name)).columns}


def body_and_back(script: Script, row: tuple[Any, ...]) -> tuple[bytes, tuple[Any, ...]]:
    table = script.catalog.table(nodes.Name("orders"))
    fields = tuple(Field(each.name, each.type) for each in table.columns)
    written = compiled(Fragment(FromRows(fields), (), ToTable(table, table.columns)))([row])
    assert not written.failed
    (body,) = written.values
    read = compiled(Fragment(FromTable(table, table.columns), (), ToRows()))([_record(body)])
    assert not read.failed
    return body, read.values[0]


def _record(body: bytes) -> Record:
    return SimpleNamespace(body=body)  # type: ignore[return-value]


ROW = (1, None, Decimal("9.50"), 1000, 3, "NEW", None, [("a", 2)], ("b", 3), {"k": "v"}, 0.5, "x", b"y")


@pytest.mark.parametrize("registry", ["confluents", "rocketmqs"])
def test_a_subject_is_a_table_with_its_columns(registry: str, request: pytest.FixtureRequest) -> None:
    made: Made = request.getfixturevalue(registry)
    script = script_of(made.url)
    assert columns_of(script, "orders") == COLUMNS
    body, row = body_and_back(script, ROW)
    assert row == ROW
    head = body[0], int.from_bytes(body[1:9] if registry == "rocketmqs" else body[1:5], "big")
    assert head[0] == (0x10 if registry == "rocketmqs" else 0)
    if registry == "rocketmqs":
        assert head[1] == made.open_schemas.record_id("orders", 1)


def test_tables_of_a_registry_are_shown_and_made_when_they_are_used(confluents: Made) -> None:
    script = script_of(confluents.url)
    further = script.catalog.further
    assert further is not None
    assert not confluents.server.requests
    assert further.names() == ["empty", "n.Order", "none", "orders", "plain", "precise", "text", "tree", "union"]
    assert [each.path for each in confluents.server.requests] == ["/subjects"]
    script.run("CREATE TABLE s (x INT) WITH ('topic' = 's'); INSERT INTO s SELECT x FROM plain;")
    script.run("INSERT INTO s SELECT x FROM plain;")
    assert [each.path for each in confluents.server.requests] == ["/subjects", "/subjects/plain/versions/latest"]
    assert further.text("plain").startswith(
        "CREATE TABLE `plain` (\n  `x` INT NOT NULL\n) WITH (\n  'topic' = 'plain',\n"
    )
    again = Script()
    again.run(further.text("plain"))
    assert again.catalog.tables["plain"].columns == script.catalog.table(nodes.Name("plain")).columns


@pytest.mark.parametrize("subject", UNFIT)
def test_a_subject_that_cannot_be_a_table_says_why_when_it_is_used(confluents: Made, subject: str) -> None:
    name = subject.removesuffix("-value")
    with pytest.raises(SqlError) as caught:
        script_of(confluents.url).run(
            f"CREATE TABLE s (x INT) WITH ('topic' = 's'); INSERT INTO s SELECT x FROM `{name}`;"
        )
    assert caught.value.message.startswith(f"{name} cannot be used: {UNFIT[subject][1]}")
    assert (caught.value.file, caught.value.line, caught.value.column) == ("", 1, 74)


@pytest.mark.parametrize(
    ("text", "file", "column"),
    [
        ("CREATE VIEW w AS SELECT id, nothing FROM orders", "", 29),
        ("CREATE VIEW w AS SELECT id FROM orders; EXPLAIN SELECT nothing FROM w", "job.sql", 56),
    ],
)
def test_an_error_is_in_the_statement_that_names_the_table(confluents: Made, text: str, file: str, column: int) -> None:
    with pytest.raises(SqlError) as caught:
        script_of(confluents.url).run(text, file)
    assert (caught.value.file, caught.value.line, caught.value.column) == (file, 1, column)


def test_a_name_that_is_in_no_catalog_has_its_nearest(confluents: Made) -> None:
    with pytest.raises(SqlError, match="there is no table order: did you mean 'orders'"):
        script_of(confluents.url).run("CREATE VIEW v AS SELECT * FROM `order`")


def test_what_a_script_creates_comes_before_a_registry(confluents: Made) -> None:
    script = script_of(confluents.url)
    script.run("CREATE TABLE orders (own INT) WITH ('topic' = 's')")
    assert columns_of(script, "orders") == {"own": "INT"}


def test_older_versions_are_read_by_the_record_in_the_message(rocketmqs: Made) -> None:
    rocketmqs.open_schemas.subjects.clear()
    first = rocketmqs.open_schemas.register("orders", record(of("id", "long")))
    script = script_of(rocketmqs.url)
    old, _ = body_and_back(script, (7,))
    second = rocketmqs.open_schemas.register("orders", record(of("id", "long"), of("note", "string", default="none")))
    script = script_of(rocketmqs.url)
    assert columns_of(script, "orders") == {"id": "BIGINT NOT NULL", "note": "STRING"}
    new, _ = body_and_back(script, (8, "x"))
    assert [int.from_bytes(each[1:9], "big") for each in (old, new)] == [first, second]
    table = script.catalog.table(nodes.Name("orders"))
    read = compiled(Fragment(FromTable(table, table.columns), (), ToRows()))
    assert read([_record(old), _record(new)]).values == [(7, None), (8, "x")]
    failed = read([_record(b"\x00\x01"), _record(b"\x10" + bytes(7) + b"\x09" + b"\x02")]).failed
    assert "it begins with 00, and not 10" in str(failed[0])
    assert "the schema of id 9 is unknown" in str(failed[1])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1/schema-registry/v1/cluster/c", "ends with /schema-registry/v1/cluster/C/tenant/T"),
        ("http://", "--catalog: url= of the schema registry"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        script_of(url)


def test_a_catalog_is_one_file(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match=r"names two files, a\.sql and b\.sql"):
        file_of(["a.sql", "http://x", "b.sql"])
    with pytest.raises(SqlError, match=r"begins with http:// or https://, not http://h/x"):
        file_of(["http:/u:pw@h/x"])
    with pytest.raises(SqlError, match="there is no such file"):
        script_of(str(tmp_path / "missing.sql"))
    assert file_of(["none", "http://x"]) is None


def test_several_registries_are_one_catalog(confluents: Made, rocketmqs: Made) -> None:
    rocketmqs.open_schemas.register("more", record(of("y", "int")))
    script = script_of(rocketmqs.url, confluents.url)
    assert script.catalog.further is not None
    assert {"more", "orders", "plain"} <= set(script.catalog.further.names())
    assert columns_of(script, "more") == {"y": "INT NOT NULL"}
    assert columns_of(script, "plain") == {"x": "INT NOT NULL"}
    assert "avro-openschema" in script.catalog.further.text("more")


def test_the_tables_are_those_of_now(confluents: Made) -> None:
    tables = RegistryTables(confluents.url, Script().texts)
    assert tables.table("nothing") is None
    assert tables.table("plain") is tables.table("plain")


@pytest.mark.parametrize("path", ["/subjects", "/subjects/plain/versions/latest"])
def test_a_registry_that_is_slow_is_an_error_after_one_deadline(
    confluents: Made, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody at a terminal sees that it is waited for; the shell does not ask again with each key."""
    answer, asked, given_up = confluents.server.handle, threading.Event(), threading.Event()
    waits: list[float] = []

    class Hurried(queue.SimpleQueue[Any]):
        """Its time is up as soon as the registry has been asked what it is slow to answer."""

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            until(lambda: asked.is_set() or not self.empty(), f"a request for {path}, or an answer")
            waits.append(timeout or 0)
            return super().get(block=False)

    def slow(request: Request) -> Answer:
        if request.path == path:
            asked.set()
            given_up.wait()
        return answer(request)

    monkeypatch.setattr(registries, "queue", SimpleNamespace(SimpleQueue=Hurried, Empty=queue.Empty))
    tables = RegistryTables(confluents.url.replace("http://", "http://user:secret@"), Script().texts)
    if path != "/subjects":
        assert "plain" in tables.names()
    confluents.server.handle = slow
    try:
        for _ in range(2 if path == "/subjects" else 1):
            with pytest.raises(
                (SqlError, Refusal), match=r"127.*:[0-9]+ has not answered completely within 15 s"
            ) as caught:
                tables.table("plain")
    finally:
        given_up.set()
    assert sum(waits[-2:]) == registries.DEADLINE_S
    assert [each.path for each in confluents.server.requests].count(path) == 1
    told = capsys.readouterr().err
    assert told == f"waiting up to 15 s for schema registry {confluents.url}\n"
    assert "secret" not in f"{caught.value}{told}"


def test_names_that_a_terminal_would_obey_are_not_shown(confluents: Made) -> None:
    confluents.server.script(answer(200, ["orders-value", "x\x1b[2J", "", "y\u0000"]))
    assert script_of(confluents.url).catalog.further.names() == ["orders"]  # type: ignore[union-attr]
    confluents.server.script(answer(422, {"error_code": 1, "message": "\x1b[2J no"}))
    with pytest.raises(SqlError, match=r"422: \\x1b\[2J no"):
        script_of(confluents.url).catalog.further.names()  # type: ignore[union-attr]
