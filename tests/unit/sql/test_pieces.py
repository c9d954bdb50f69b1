"""Texts are cut at their semicolons, and at no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.pieces import open_token, pieces

PART = st.sampled_from(
    ["SELECT a", " ';' ", "`x;y`", "{a;b}", "-- c;\n", "/* d; */", "'it''s;'", "\n", "1 / 2", "a - b"]
)


@given(st.lists(st.lists(PART).map("".join), min_size=1, max_size=5))
def test_a_text_is_cut_where_its_statements_end(statements: list[str]) -> None:
    text = ";".join(statements)
    found = pieces(text)
    assert [text[each.start : each.end].removesuffix(";") for each in found] == (
        statements if statements[-1].strip() else statements[:-1]
    )
    assert all(each.is_ended for each in found[:-1])


@pytest.mark.parametrize(
    ("text", "is_ended", "is_empty"),
    [
        ("SELECT 1;", True, False),
        ("SELECT 1", False, False),
        ("SELECT ';'", False, False),
        ("SELECT 1 -- ;", False, False),
        ("SELECT 1 /* ;", False, False),
        ("-- only;", False, True),
        (" /* c */ ;", True, True),
    ],
)
def test_a_piece_says_whether_it_ends(text: str, is_ended: bool, is_empty: bool) -> None:
    (found,) = pieces(text)
    assert (found.is_ended, found.is_empty) == (is_ended, is_empty)


@pytest.mark.parametrize(
    ("text", "sign"), [("a 'b", "'"), ("a 'b''", "'"), ("a `b", "`"), ("/* a", "/*"), ("'a' /* b */ `c`", ""), ("", "")]
)
def test_what_does_not_end_is_known(text: str, sign: str) -> None:
    assert open_token(text) == sign
