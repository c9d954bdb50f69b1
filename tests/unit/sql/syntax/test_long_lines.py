"""Errors in texts that are long, or have characters that take no column or control a terminal."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import Source, Span, SqlError
from rmqio.sql.syntax.parser import parse


def _shown(text: str, start: int, end: int) -> list[str]:
    return Source(text).error("wrong", Span(start, end)).shown.split("\n")


@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 1000), (1000, 0), (1000, 1000), (70, 200), (200, 10)])
def test_of_a_long_line_the_part_around_the_place_is_shown(before: int, after: int) -> None:
    line, carets = _shown("a" * before + "bad" + "c" * after, before, before + 3)
    assert len(line) <= 2 + 100 + 6
    assert line[carets.index("^") : carets.rindex("^") + 1] == "bad"
    assert carets.count("^") == 3


@pytest.mark.parametrize(("columns", "is_cut"), [(120, False), (121, True)])
@pytest.mark.parametrize("character", ["a", "\u4e2d"], ids=["ASCII", "Chinese"])
def test_a_line_of_120_columns_is_shown_as_a_whole(columns: int, is_cut: bool, character: str) -> None:
    width = 1 if character.isascii() else 2
    line, carets = _shown(character * (columns // width) + "a" * (columns % width), 10, 13)
    assert line.endswith("...") is is_cut
    assert carets == "  " + " " * 10 * width + "^" * 3 * width
    assert sum(1 if each.isascii() else 2 for each in line) <= 2 + 120


def test_carets_end_where_the_line_that_is_shown_ends() -> None:
    line, carets = _shown("x" * 1_000_000, 10, 999_999)
    assert len(carets) <= len(line) <= 108


def test_the_place_of_a_long_line_is_that_of_the_whole_line() -> None:
    error = Source("\n" + "a" * 5000).error("wrong", Span(4001, 4002))
    assert (error.line, error.column) == (2, 4001)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("a\tb\tbad", 4, ["  a\tb\tbad", "   \t \t^^^"]),
        ("'中文' bad", 5, ["  '中文' bad", "         ^^^"]),
        ("'e\u0301' bad", 5, ["  'e\u0301' bad", "      ^^^"]),
        ("x\r\nbad\r\ny", 3, ["  bad", "  ^^^"]),
        ("'\x1b[31m\0' bad", 9, ["  '\ufffd[31m\ufffd' bad", "           ^^^"]),
    ],
)
def test_carets_stand_under_the_place(text: str, start: int, expected: list[str]) -> None:
    assert _shown(text, start, start + 3) == expected


@pytest.mark.parametrize(
    "text",
    [f"SELECT {'x' * 300_000} FORM t", f"SELECT '{'x' * 300_000}' FORM t", f"SELECT a FROM t{' ' * 300_000}, , u"],
    ids=["a name", "a string", "space"],
)
@pytest.mark.timeout(60)
def test_an_error_behind_a_long_word_is_found_at_once_and_is_short(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("SELECT a\uff0cb FROM t", ","),
        ("SELECT a FROM t\uff1b", ";"),
        ("SELECT a FROM t WHERE a \uff1e 1", ">"),
        ("SELECT \u2018a\u2019", "'"),
    ],
)
def test_a_sign_of_another_script_is_told(text: str, plain: str) -> None:
    with pytest.raises(SqlError, match="did you mean") as caught:
        parse(text)
    assert f"did you mean {plain!r}?" in str(caught.value)
