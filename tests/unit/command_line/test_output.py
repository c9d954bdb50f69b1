"""The command line prints tables, units and bodies, and nothing in them reaches a terminal as a command."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from rmqio.cli.printing import Printer, Shown, avro_reader, body_fields, show_body
from rmqio.command_line.cluster import Item
from rmqio.command_line.output import (
    duration,
    one_line,
    print_json,
    print_table,
    safe,
    safe_line,
    shortened,
    size,
    time_text,
)
from rmqio.errors import CorruptMessage, LocalError
from rmqio.model import MessageQueue, Record
from rmqio.testing import InMemoryCluster

QUEUE = MessageQueue("orders", "broker-a", 0)


def record(body: bytes, **more: object) -> Record:
    with InMemoryCluster() as cluster:
        cluster.create_topic("orders", 1)
        return cluster.append("orders", body, **more)  # type: ignore[arg-type]


# ---- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("杭州 Zürich \U0001f680\ttab\nline", "杭州 Zürich \U0001f680\ttab\nline"),
        ("\x1b[31mred\x07\x7f", "\\x1b[31mred\\x07\\x7f"),
        ("\x9b2J", "\\x9b2J"),  # the same in one character, on some terminals
        ("a\rb", "a\\x0db"),  # would write over what came before
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
        ("\u200bhidden\U000e0041", "\\u200bhidden\\U000e0041"),
        (b"\xff\xfe".decode(errors="surrogateescape"), "\\xff\\xfe"),
        ("\U0001f469\u200d\U0001f680", "\U0001f469\u200d\U0001f680"),  # joined by what cannot be seen
    ],
    ids=["harmless", "escape", "c1", "return", "bidi", "invisible", "bytes", "emoji"],
)
def test_a_terminal_gets_no_commands(text: str, expected: str) -> None:
    assert safe(text) == expected


def test_one_line_stays_one() -> None:
    assert safe_line("a\nb\tc") == "a\\nb\\tc"
    assert one_line("first\n\n  second\x1b") == "first second\\x1b"


def test_json_has_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "\x1b\x7f\x9b杭"})
    out = capsys.readouterr().out
    assert out.rstrip("\n").isascii()
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == {"a": "\x1b\x7f\x9b杭"}


def test_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("QUEUE", ">LAG", "AGE"), [("b:0", "1,234", "now"), ("b:10", "5", "")], total=("total", "1,239", ""))
    assert capsys.readouterr().out == (
        "QUEUE    LAG  AGE\n"
        "b:0    1,234  now\n"
        "b:10       5\n"
        "-----  -----  ---\n"
        "total  1,239\n"
    )  # fmt: skip


def test_a_table_leaves_out_columns_where_the_terminal_is_too_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ("QUEUE", "?>FIRST", "?NEWEST", ">LAG")
    row = ("broker-a:0", "1" * 20, "2" * 20, "3" * 25)
    print_table(columns, [row])
    assert capsys.readouterr().out.splitlines()[0].split() == ["QUEUE", "NEWEST", "LAG"]
    monkeypatch.setenv("COLUMNS", "100")
    print_table(columns, [row])
    assert capsys.readouterr().out.splitlines()[0].split() == ["QUEUE", "FIRST", "NEWEST", "LAG"]
    print_table(("?QUEUE", "LAG"), [("", "3" * 200)])  # what is needed stays, however wide
    assert capsys.readouterr().out.splitlines()[0].split() == ["LAG"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LONG = ("orders-of-a-very-long-region-name-" * 3 + "eu", "1,234", "broker-a")
OTHER = ("orders-of-a-very-long-region-name-" * 3 + "us", "5", "broker-with-a-long-name-in-rack-17")


def printed_on(out: io.StringIO, monkeypatch: pytest.MonkeyPatch, *rows: tuple[str, ...]) -> list[str]:
    monkeypatch.setattr(sys, "stdout", out)
    print_table(("~TOPIC", ">MESSAGES", "~BROKERS"), rows)
    return out.getvalue().splitlines()


def test_long_names_lose_their_middle_on_a_terminal_that_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed_on(Terminal(), monkeypatch, LONG, OTHER)
    assert max(map(len, lines)) == 80
    assert lines[0].split() == ["TOPIC", "MESSAGES", "BROKERS"]
    name, messages, broker = lines[2].split()
    assert (messages, broker) == ("5", OTHER[2]), "the longest is shortened first"
    head, _, tail = name.partition("...")
    assert OTHER[0].startswith(head)
    assert OTHER[0].endswith(tail)
    assert abs(len(head) - len(tail)) <= 1


def test_names_stay_whole_where_they_fit_and_where_no_person_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LONG[0] in printed_on(io.StringIO(), monkeypatch, LONG)[1]
    monkeypatch.setenv("COLUMNS", "160")
    assert LONG[0] in printed_on(Terminal(), monkeypatch, LONG)[1]


def test_names_that_would_look_the_same_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a" * 50 + middle + "z" * 50, "1", "broker-a") for middle in "xy"]
    assert [line.split()[0] for line in printed_on(Terminal(), monkeypatch, *rows)[1:]] == [row[0] for row in rows]


def test_a_table_knows_how_wide_chinese_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("CITY", ">LAG"), [("杭州", "1"), ("Zürich", "2")])
    assert capsys.readouterr().out == "CITY    LAG\n杭州      1\nZürich    2\n"


def test_many_names_are_shortened() -> None:
    assert shortened(["a", "b", "c"]) == "a, b, c"
    assert shortened(["a", "b", "c", "d"]) == "a, b and 2 more"


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (None, "-"),
        (-5, "0 s"),
        (40, "0.0 s"),
        (1_234, "1.2 s"),
        (42_000, "42 s"),
        (600_000, "10 min"),
        (7_200_000, "2 h"),
        (864_000_000, "10 d"),
    ],
)
def test_duration_in_the_unit_that_fits(ms: int | None, expected: str) -> None:
    assert duration(ms) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(1, "1 byte"), (9_999, "9,999 bytes"), (12_000, "12 kB"), (1_048_576, "1.0 MB")]
)
def test_size(number: int, expected: str) -> None:
    assert size(number) == expected


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    assert time_text(1 << 62) == f"{1 << 62} ms"
    assert time_text(None) == "-"


# ---- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "style", "kind", "lines"),
    [
        (b"plain", "auto", "text, 5 bytes", ["plain"]),
        ('{"城": 1}'.encode(), "auto", "JSON, 10 bytes", ['{"城": 1}']),
        (b"[1]", "json", "JSON, 3 bytes", ["[", "  1", "]"]),
        (b"{broken", "json", "text, 7 bytes", ["{broken"]),
        (b"17", "auto", "text, 2 bytes", ["17"]),
        (b"a\r\nb\n", "auto", "text, 5 bytes", ["a", "b"]),
        (b"x" * 30 + b"\x1b[0m", "auto", "text, 34 bytes", ["x" * 30 + "\\x1b[0m"]),
        (b"\x00\x01", "auto", "binary, 2 bytes", ["000000  00 01" + " " * 42 + "  .."]),
        (b"ok\xff", "auto", "binary, 3 bytes", ["000000  6f 6b ff" + " " * 39 + "  ok."]),
        (b"ok\xff", "text", "not UTF-8, 3 bytes", ["ok\\xff"]),
        (b"A", "hex", "1 byte", ["000000  41" + " " * 45 + "  A"]),
        (b"secret", "none", "not shown, 6 bytes", []),
        (b"", "auto", "text, 0 bytes", []),
        (b'{"a": "\\ud800"}', "json", "JSON, 15 bytes", ["{", '  "a": "\\ud800"', "}"]),
    ],
    ids=lambda value: None if isinstance(value, list) else repr(value)[:20],
)
def test_a_body_is_shown_as_what_it_looks_like(body: bytes, style: str, kind: str, lines: list[str]) -> None:
    assert show_body(record(body), style, 1_000) == Shown(kind, lines, 0)  # type: ignore[arg-type]


def test_a_long_body_is_cut_between_characters() -> None:
    shown = show_body(record("杭".encode() * 1_000), "auto", 100)
    assert shown == Shown("text, 3,000 bytes", ["杭" * 33], 3_000 - 99)
    shown = show_body(record(b"\x00" * 1_000), "auto", 100)
    assert (len(shown.lines), shown.left_out_bytes) == (1, 1_000 - 16)
    assert show_body(record(b"\x00" * 1_000), "auto", 0).left_out_bytes == 0


@pytest.mark.parametrize(
    ("body", "max_bytes", "expected"),
    [
        ("杭州".encode(), 0, {"body_bytes": 6, "body": "杭州"}),
        ("杭州".encode(), 4, {"body_bytes": 6, "body": "杭"}),
        (b"\xff\x00", 0, {"body_bytes": 2, "body_base64": "/wA="}),
    ],
    ids=["text", "cut", "binary"],
)
def test_a_body_for_a_script(body: bytes, max_bytes: int, expected: dict[str, object]) -> None:
    assert body_fields(record(body), max_bytes) == expected


def test_avro_bodies(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    avro = avro_reader(str(tmp_path / "order.avsc"))
    assert show_body(record(b"\x22"), "auto", 1_000, avro).lines == ["{", '  "id": 17', "}"]
    assert body_fields(record(b"\x22"), 0, avro)["value"] == {"id": 17}
    assert show_body(record(b"\x22\x22"), "auto", 1_000, avro).kind.startswith("not of this Avro schema (")
    assert "error" in body_fields(record(b"\x22\x22"), 0, avro)
    with pytest.raises(LocalError, match=r"ordr\.avsc: the file does not exist; did you mean .*/order\.avsc\?"):
        avro_reader(str(tmp_path / "ordr.avsc"))
    with pytest.raises(LocalError, match=r"nowhere/order\.avsc: the file does not exist$"):
        avro_reader(str(tmp_path / "nowhere" / "order.avsc"))


# ---- messages --------------------------------------------------------------------------------------------------------


def test_a_message_with_commands_in_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    bad = record(b"\x1b]0;x\x07", tags="\x1b[1m", keys=["\x1b[2m"], properties={"\x1b[3m": "\x1b[4m\n5"})
    Printer(False, "auto", 1_000).print(Item(0, QUEUE, 7, bad))
    out = capsys.readouterr().out
    assert out.startswith("broker-a:0 @ 7   ")
    assert "property  \\x1b[3m = \\x1b[4m\\n5\n" in out
    assert "\x1b" not in out


def test_what_names_a_message_stands_beside_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    short = record(b"x", tags="paid", keys=["o-17"], properties={"__SHARDINGKEY": "c-3"})
    Printer(False, "auto", 1_000).print(Item(0, QUEUE, 7, short))
    Printer(False, "auto", 1_000).print(Item(0, QUEUE, 7, short._replace(raw_properties=b"")))
    Printer(True, "auto", 1_000).print(Item(0, QUEUE, 7, short))
    out = capsys.readouterr().out
    first, second, *_ = out.splitlines()
    assert first.endswith("   tags paid   keys o-17")
    assert second == "  sharding key c-3"
    assert max(len(line) for line in out.splitlines()[:-1]) <= 80
    assert "__SHARDINGKEY" not in out.rpartition("\n{")[0]
    assert json.loads(out.splitlines()[-1])["sharding_key"] == "c-3"


def test_a_message_that_does_not_decode(capsys: pytest.CaptureFixture[str]) -> None:
    item = Item(0, QUEUE, 7, CorruptMessage("CRC does not match"))
    Printer(False, "auto", 1_000).print(item)
    Printer(True, "auto", 0).print(item)
    text, _, document = capsys.readouterr().out.splitlines()
    assert text == "broker-a:0 @ 7   cannot be decoded: CRC does not match"
    assert json.loads(document) == {
        "topic": "orders", "broker": "broker-a", "queue_id": 0, "queue_offset": 7, "error": "CRC does not match",
    }  # fmt: skip


def test_a_message_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    given = record(b"x", tags="t", keys=["a", "b"], properties={"city": "Zürich"}, born_ms=5, store_ms=9)
    given = given._replace(raw_properties=given.raw_properties + b"bad\x01\xff\x02")
    Printer(True, "auto", 0).print(Item(9, QUEUE, 0, given))
    found = json.loads(capsys.readouterr().out)
    assert (found["tags"], found["keys"], found["body"]) == ("t", ["a", "b"], "x")
    assert (found["born_timestamp_ms"], found["store_timestamp_ms"]) == (5, 9)
    assert found["properties"]["city"] == "Zürich"
    assert found["properties"]["bad"] == "\\xff"
