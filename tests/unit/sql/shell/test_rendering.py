"""Rows as tables of 80 columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.command_line.terminal import display_width
from rmqio.sql import types
from rmqio.sql.planning.plan import Field
from rmqio.sql.shell.rendering import RowPrinter, print_table, shortened


def printed(fields: list[Field], *batches: list[tuple[Any, ...]], width: int = 80, is_read: bool = False) -> list[str]:
    lines: list[str] = []
    printer = RowPrinter(fields, lines.append, width, is_read=is_read)
    for each in batches:
        printer.print(each)
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


def test_a_program_that_reads_the_rows_gets_one_head() -> None:
    fields = [Field("n", types.BIGINT)]
    assert printed(fields, [(1,)], [(100,)], is_read=True) == ["n", "-", "1", "    100"]


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
