"""Protobuf bodies: fields of every type, presence, what does not fit, and bodies of other versions."""

from __future__ import annotations

import base64
import contextlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql import types
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.formats import encoder_of
from rmqio.sql.formats.base import RowFailure
from rmqio.sql.formats.protobuf_schemas import columns_of, messages_of
from rmqio.sql.scripts.script import Script
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.protobufs import MONEY, NEST, OLD, ORDER, descriptor, message
from tests.unit.sql.formats.support import decode, encode, fields_of, table_with

SHOP = descriptor(MONEY, ORDER)
COLUMNS = {
    "id": "BIGINT NOT NULL", "small": "INT NOT NULL", "u": "BIGINT NOT NULL", "big": "DECIMAL(20, 0) NOT NULL",
    "price": "DOUBLE NOT NULL", "ratio": "FLOAT NOT NULL", "paid": "BOOLEAN NOT NULL", "note": "STRING",
    "raw": "BYTES NOT NULL", "status": "STRING NOT NULL", "total": "ROW<`units` BIGINT, `currency` STRING>",
    "tags": "ARRAY<STRING> NOT NULL", "lines": "ARRAY<ROW<`units` BIGINT, `currency` STRING>> NOT NULL",
    "counts": "MAP<STRING, INT> NOT NULL", "at": "TIMESTAMP_LTZ(6)", "limit": "INT", "card": "STRING", "cash": "INT",
}  # fmt: skip
FULL = (
    1 << 40, -5, 4_000_000_000, Decimal(2**64 - 1), 0.1, 0.5, True, "", b"\x00\xff", "PAID", (950, "EUR"), ["a", ""],
    [(1, "x"), (2, "")], {"k": 3, "": 0}, 1_500_000_000_123_456, 0, None, 0,
)  # fmt: skip
DEFAULTS: tuple[Any, ...] = (
    0, 0, 0, Decimal(0), 0.0, 0.0, False, None, b"", "NEW", None, [], [], {}, None, None, None, None,
)  # fmt: skip


def kinds(columns: dict[str, str]) -> dict[str, SqlType]:
    script = Script()
    script.run("CREATE TABLE t ({}) WITH ('topic' = 't')".format(", ".join(f"`{k}` {v}" for k, v in columns.items())))
    return {each.name: each.type for each in script.catalog.tables["t"].columns}


KINDS = kinds(COLUMNS)


def orders(**options: str) -> Any:
    found = {"format": "protobuf", "protobuf__descriptor": SHOP, "protobuf__message_name": "shop.Order", **options}
    return table_with(KINDS, **found)


def body(**fields: Any) -> bytes:
    found = message(SHOP, "shop.Order", **fields)
    written = found.SerializeToString()
    assert isinstance(written, bytes)
    return written


def test_the_columns_of_a_message() -> None:
    assert dict(columns_of(messages_of(SHOP)["shop.Order"])) == COLUMNS
    assert dict(columns_of(messages_of(descriptor(OLD))["Old"])) == {"must": "INT NOT NULL", "may": "INT"}


@pytest.mark.parametrize(
    ("name", "reason"), [("Tree", "its field next: the message Tree contains itself"), ("Empty", "has no fields")]
)
def test_a_message_that_is_no_table_says_why(name: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        list(columns_of(messages_of(descriptor(OLD))[name]))


def test_rows_come_back_as_they_were_and_bodies_are_what_a_peer_reads() -> None:
    written = encode(orders(), FULL)
    assert decode(orders(), written) == FULL
    found = message(SHOP, "shop.Order")
    found.ParseFromString(written)
    assert (found.id, found.big, found.status, found.note, found.HasField("note")) == (1 << 40, 2**64 - 1, 1, "", True)
    assert (found.at.seconds, found.at.nanos, found.limit.value) == (1_500_000_000, 123_456_000, 0)
    assert found.WhichOneof("payment") == "cash"
    assert [each.units for each in found.lines] == [1, 2]


def test_a_body_by_hand() -> None:
    table = table_with({"id": types.BIGINT, "note": types.VARCHAR}, format="protobuf", protobuf__descriptor=SHOP,
                       protobuf__message_name="shop.Order")  # fmt: skip
    assert decode(table, b"\x08\x96\x01\x42\x02hi") == (150, "hi")
    assert encode(table, (150, "hi")) == b"\x08\x96\x01\x42\x02hi"


def test_what_is_not_there_is_null_or_its_default() -> None:
    assert decode(orders(), b"") == DEFAULTS
    old = table_with({"may": types.INTEGER}, format="protobuf", protobuf__descriptor=descriptor(OLD),
                     protobuf__message_name="Old")  # fmt: skip
    assert decode(old, b"\x08\x01") == (None,)
    defaults = table_with({"may": types.INTEGER}, format="protobuf", protobuf__descriptor=descriptor(OLD),
                          protobuf__message_name="Old", protobuf__read_default_values="true")  # fmt: skip
    assert decode(defaults, b"\x08\x01") == (7,)
    with pytest.raises(RowFailure, match="no value for what Old requires: must"):
        decode(old, b"\x10\x01")


@pytest.mark.parametrize(
    ("body", "with_defaults", "without"),
    [
        (b"", ((7, ("x",)), [], {}, None, None), (None, None, None, None, None)),
        (b"\x0a\x00\x12\x00\x1a\x02\x08\x05", ((7, ("x",)), [(7, ("x",))], {5: (7, ("x",))}, None, None),
         ((None, None), [(None, None)], {5: (None, None)}, None, None)),
        (b"\x0a\x04\x08\x00\x12\x00\x22\x00\x2a\x00", ((0, ("x",)), [], {}, 0, 0), ((0, (None,)), None, None, 0, 0)),
    ],
)  # fmt: skip
def test_defaults_at_any_depth(body: bytes, with_defaults: Any, without: Any) -> None:
    inner = "ROW<may INT, `in` ROW<text STRING>>"
    columns = {
        "old": inner,
        "list": f"ARRAY<{inner}>",
        "map": f"MAP<INT, {inner}>",
        "at": "TIMESTAMP_LTZ(3)",
        "one": "INT",
    }
    for option, wanted in (("true", with_defaults), ("false", without)):
        table = table_with(kinds(columns), format="protobuf", protobuf__descriptor=descriptor(NEST),
                           protobuf__message_name="Nest", protobuf__read_default_values=option)  # fmt: skip
        assert decode(table, body) == wanted


@pytest.mark.parametrize(
    ("data", "columns", "reason"),
    [
        (b"\xff\xff", {}, "the body is not Protobuf of shop.Order"),
        (body(status=9), {}, "column status: 9 is no value of the enum shop.Status"),
        (body(id=1 << 40), {"id": "INT"}, "column id: 1099511627776 is out of range of an integer of 32 bits"),
        (body(big=2**64 - 1), {"big": "DECIMAL(5, 0)"}, r"column big: 18446744073709551615 does not fit into DECIMAL"),
        (body(at={"seconds": 1 << 50}), {}, "column at: .* are not in the years 1 to 9999"),
        (body(at={"nanos": -5}), {}, "column at: -5 nanoseconds are not within a second, as those of a Timestamp are"),
        (body(at={"nanos": 10**9}), {}, "column at: 1000000000 nanoseconds are not within a second"),
        (body(), {"note": "STRING NOT NULL"}, "column note: it is NOT NULL, but the body has no value for it"),
    ],
)
def test_a_bad_body_says_why(data: bytes, columns: dict[str, str], reason: str) -> None:
    table = table_with(kinds(COLUMNS | columns), format="protobuf", protobuf__descriptor=SHOP,
                       protobuf__message_name="Order")  # fmt: skip
    with pytest.raises(RowFailure, match=reason):
        decode(table, data)


@pytest.mark.parametrize(
    ("columns", "row", "reason"),
    [
        ({"card": "STRING", "cash": "INT"}, ("a", 1), "card and cash are both not NULL, .* the oneof payment"),
        ({"small": "BIGINT"}, (1 << 31,), "column small: .*"),
        ({"status": "STRING"}, ("GONE",), "column status: GONE is not the name of the enum shop.Status"),
        ({"tags": "ARRAY<STRING>"}, (["a", None],), "column tags: a list or a map contains NULL"),
        ({"counts": "MAP<STRING, INT>"}, ({"a": None},), "column counts: a list or a map contains NULL"),
        ({"id": "BIGINT"}, (0,), "the body would be empty"),
    ],
)
def test_a_row_that_the_message_does_not_have_says_why(
    columns: dict[str, str], row: tuple[Any, ...], reason: str
) -> None:
    table = table_with(
        kinds(columns), format="protobuf", protobuf__descriptor=SHOP, protobuf__message_name="shop.Order"
    )
    with pytest.raises(ValueFailure, match=reason):
        encode(table, row)


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"id": "STRING"}, {}, "column id: the field is int64, which does not fit STRING"),
        ({"tags": "STRING"}, {}, "column tags: the field is a list of string, which does not fit STRING"),
        ({"counts": "ARRAY<INT>"}, {}, "column counts: the field is a map, which does not fit"),
        ({"total": "ROW<unit BIGINT>"}, {}, "column total: the message shop.Money has no field unit"),
        ({"ids": "BIGINT"}, {}, "column ids: the message shop.Order has no such field"),
        ({"id": "BIGINT"}, {"protobuf__message_name": "shop.Orders"}, "did you mean 'shop.Order'"),
        ({"id": "BIGINT"}, {"protobuf__descriptor": "zz!"}, "protobuf.descriptor cannot be used: it is not a File"),
        ({"id": "BIGINT"}, {"protobuf__descriptor": descriptor(ORDER)}, "do not fit together: .*--include_imports"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(columns: dict[str, str], options: dict[str, str], reason: str) -> None:
    found = {"protobuf__descriptor": SHOP, "protobuf__message_name": "shop.Order", **options}
    with pytest.raises(Refusal, match=reason):
        table_with(kinds(columns), format="protobuf", **found)


def test_the_descriptor_is_of_a_file_and_the_message_can_have_the_name_of_its_class(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(base64.b64decode(SHOP))
    table = table_with({"id": types.BIGINT}, format="protobuf", protobuf__descriptor_file=str(path),
                       protobuf__message_class_name="com.example.ShopProto$Order")  # fmt: skip
    assert decode(table, b"\x08\x05") == (5,)
    with pytest.raises(Refusal, match=r"needs the option 'protobuf\.message-name': one of shop\.Order, shop\.Other"):
        table_with({"id": types.BIGINT}, format="protobuf", protobuf__descriptor_file=str(path))
    with pytest.raises(Refusal, match=r"needs the option 'protobuf\.descriptor-file'"):
        table_with({"id": types.BIGINT}, format="protobuf")
    with pytest.raises(Refusal, match="cannot be read: No such file"):
        table_with({"id": types.BIGINT}, format="protobuf", protobuf__descriptor_file=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("columns", "statement", "reason"),
    [
        ("may INT", "INSERT INTO v SELECT a FROM t", "v cannot be written: the message Old requires must, which is no"),
        ("must INT, may INT", "INSERT INTO v (may) SELECT a FROM t",
         "v cannot be written: the column must gets no value, and the message Old requires it"),
        ("must INT, may DECIMAL(5, 0)", "INSERT INTO v SELECT a, a FROM t", None),
        ("must TINYINT, may INT", "INSERT INTO v SELECT CAST(a AS TINYINT), a FROM t", None),
        ("may INT", "EXPLAIN SELECT may FROM v", None),
    ],
)  # fmt: skip
def test_a_script_is_refused_if_the_message_does_not_take_the_columns(
    columns: str, statement: str, reason: str | None
) -> None:
    of_format = f"'protobuf.message-name' = 'Old', 'protobuf.descriptor' = '{descriptor(OLD)}'"
    options = f"'topic' = 'v', 'format' = 'protobuf', {of_format}"
    text = f"CREATE TABLE t (a INT) WITH ('topic' = 't'); CREATE TABLE v ({columns}) WITH ({options}); {statement};"
    with contextlib.nullcontext() if reason is None else pytest.raises(SqlError, match=reason):
        Script().run(text)


def test_a_message_with_required_fields_is_written_whole() -> None:
    old = table_with({"may": types.INTEGER}, format="protobuf", protobuf__descriptor=descriptor(OLD),
                     protobuf__message_name="Old")  # fmt: skip
    with pytest.raises(Refusal, match="the message Old requires must, which is not a column"):
        encoder_of(old, fields_of(old))
    whole = table_with({"must": types.INTEGER}, format="protobuf", protobuf__descriptor=descriptor(OLD),
                       protobuf__message_name="Old")  # fmt: skip
    assert encode(whole, (0,)) == b"\x08\x00"
    with pytest.raises(ValueFailure, match="the row cannot be written"):
        encode(whole, (None,))


TEXT = st.text(max_size=5)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
MONEYS = st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), TEXT)
SINGLE = st.floats(width=32, allow_nan=False)
MOMENTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
ROWS = st.tuples(
    st.integers(-(1 << 63), (1 << 63) - 1), INT, st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 64) - 1).map(Decimal), st.floats(allow_nan=False), SINGLE, st.booleans(), st.none() | TEXT,
    st.binary(max_size=5), st.sampled_from(["NEW", "PAID"]), st.none() | MONEYS, st.lists(TEXT, max_size=3),
    st.lists(MONEYS, max_size=3), st.dictionaries(TEXT, INT, max_size=3), st.none() | MOMENTS, st.none() | INT,
    st.none() | TEXT, st.none(),
)  # fmt: skip


@given(ROWS.filter(lambda row: any(row)))
def test_any_row_comes_back(row: tuple[Any, ...]) -> None:
    assume(row != DEFAULTS)
    assert decode(orders(), encode(orders(), row)) == row


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_a_row_or_a_bad_row(data: bytes, is_registry: bool) -> None:
    of_registry = {"format": "protobuf-confluent", "protobuf_confluent__url": "http://127.0.0.1:1"}
    table = orders(**(of_registry if is_registry else {}))
    with contextlib.suppress(RowFailure):
        assert len(decode(table, (b"\0\0\0\0\x01" if is_registry else b"") + data)) == len(COLUMNS)
