"""Rows as tables of 80 columns."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.command_line.output import display_width
from rmqio.sql import types
from rmqio.sql.planning.plan import Field
from rmqio.sql.runtime.outputs import row_text
from rmqio.sql.shell.rendering import RowPrinter, print_table, shortened
from rmqio.sql.types import SqlType


def printed(fields: list[Field], *batches: list[tuple[Any, ...]], width: int = 80, **given: bool) -> list[str]:
    lines: list[str] = []
    printer = RowPrinter(fields, lines.append, width, **given)
    for each in batches:
        printer.print(each)
    printer.end()
    return lines


def test_columns_are_aligned_by_what_the_terminal_shows() -> None:
    fields = [Field("id", types.BIGINT), Field("名字", types.VARCHAR), Field("price", types.decimal(10, 2))]
    assert printed(fields, [(1, "张三", Decimal("9.50")), (20, None, None), (300, "Li", Decimal("-1234.00"))]) == [
        " id  名字     price",
        "---  ----  --------",
        "  1  张三      9.50",
        " 20  NULL      NULL",
        "300  Li    -1234.00",
    ]


def test_columns_widen_for_later_rows_under_a_head_of_their_own_while_there_is_room() -> None:
    fields = [Field("a", types.VARCHAR), Field("b", types.BIGINT)]
    assert printed(fields, [("x", 1)], [("long text", 123456)], [("y", 2)], width=16) == [
        "a  b",
        "-  -",
        "x  1",
        "a              b",
        "--------  ------",
        "long ...  123456",
        "y              2",
    ]


def test_numbers_that_grow_have_few_heads_and_stand_below_each_other() -> None:
    fields = [Field("n", types.BIGINT), Field("text", types.VARCHAR)]
    lines = printed(fields, *([(10**n, "x" * 60)] for n in range(18)))
    heads = [i for i, line in enumerate(lines) if "text" in line]
    assert len(heads) == 5
    for first, last in zip(heads, [*heads[1:], len(lines)], strict=True):
        assert len({line.index("x") for line in lines[first + 2 : last]}) == 1
        assert lines[first].index("text") == lines[first + 2].index("x")


def test_a_program_that_reads_the_rows_gets_one_head_and_columns_that_keep_their_widths() -> None:
    fields = [Field("n", types.BIGINT), Field("text", types.VARCHAR), Field("m", types.BIGINT)]
    batches = [[(1, "a", 1)], [(20, "b" * 90, 2)], [(3, "c", 3)]]
    assert printed(fields, *batches, is_read=True) == [
        f" n  text{' ' * 86}  m",
        f"--  {'-' * 90}  -",
        f" 1  a{' ' * 89}  1",
        f"20  {'b' * 90}  2",
        f" 3  c{' ' * 89}  3",
    ]
    endless = ["n  text  m", "-  ----  -", "1  a     1", f"20  {'b' * 90}  2", "3  c     3"]
    assert printed(fields, *batches, is_read=True, is_endless=True) == endless
    many = printed(fields, *([(n, "x", n)] for n in range(2_000)), is_read=True)
    assert [many[2], many[1001], many[-1]] == ["  0  x       0", "999  x     999", "1999  x     1999"]


def test_text_is_cut_and_numbers_are_whole() -> None:
    fields = [Field("text", types.VARCHAR), Field("n", types.BIGINT)]
    lines = printed(fields, [("w" * 200, 10**17)])
    assert lines[2] == "w" * 57 + "...  " + f"{10**17}"
    assert display_width(lines[2]) == 80


def test_a_row_that_cannot_fit_is_upright_and_whole() -> None:
    fields = [Field(f"time{n}", types.TIMESTAMP) for n in range(5)]
    assert printed(fields, [(0, 1000, 2000, None, None)])[:3] == [
        "-- row 1 --",
        "time0  1970-01-01 00:00:00.000",
        "time1  1970-01-01 00:00:00.001",
    ]


def test_nothing_in_a_value_controls_the_terminal() -> None:
    fields = [Field("text", types.VARCHAR), Field("data", types.BYTES), Field("at", types.TIMESTAMP_LTZ)]
    assert printed(fields, [("a\x1b[31m\nb\tc", b"\x00\xff", 0)])[2] == (
        "a\\x1b[31m\\nb\\tc  x'00ff'  1970-01-01 00:00:00.000Z"
    )


def test_bytes_and_instants_have_one_form_at_any_depth_also_in_the_errors_of_rows() -> None:
    pair = (types.BYTES, types.TIMESTAMP_LTZ)
    kinds = [types.BYTES, types.array_of(types.BYTES), SqlType("MAP", elements=pair), SqlType("ROW", elements=pair)]
    fields = [Field(f"f{number}", kind) for number, kind in enumerate(kinds)]
    row = (b"\x00", [b"A", None], {b"\xff": 0}, (b"", None))
    shown = ["x'00'", "[x'41', NULL]", "{x'ff'=1970-01-01 00:00:00.000Z}", "(x'', NULL)"]
    assert printed(fields, [row])[-1] == "  ".join(shown)
    assert [*json.loads(row_text(row, fields)).values()] == shown


@given(st.lists(st.tuples(st.integers(), st.text(), st.text()), min_size=1))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[Any, ...]]) -> None:
    fields = [Field("id", types.BIGINT), Field("text", types.VARCHAR), Field("more", types.VARCHAR)]
    rows = [(number % (1 << 60), *texts) for number, *texts in rows]
    assert max(map(display_width, printed(fields, *[[row] for row in rows]))) <= 80


@given(st.text(), st.integers(3, 30))
def test_a_text_is_cut_to_its_columns(text: str, columns: int) -> None:
    found = shortened(text, columns)
    assert display_width(found) <= columns
    assert found == text or text.startswith(found.removesuffix("..."))


def test_a_table_without_rows_has_its_head() -> None:
    lines: list[str] = []
    print_table(("table",), [], lines.append)
    assert lines == ["table", "-----"]


def test_a_table_that_a_program_reads_is_whole() -> None:
    lines: list[str] = []
    print_table(("table",), [("t" * 200,)], lines.append, is_read=True)
    assert lines[2] == "t" * 200
