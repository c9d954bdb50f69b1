"""Keys of messages that say which row they are: two rows never have the same."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from hypothesis import given
from hypothesis import strategies as st

from rmqio.sql.compile.messages import row_key

SIMILAR = ["None", "NULL", "%NULL", "%00", "%20"]
PART = st.none() | st.text(alphabet="_% 0a\u3000\n", max_size=4) | st.sampled_from(SIMILAR)
KEYS = st.integers(1, 3).flatmap(lambda size: st.tuples(st.tuples(*[PART] * size), st.tuples(*[PART] * size)))


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("a_b",), "a_b"),
        (("50%",), "50%25"),
        (("one two", "1"), "one%20two_1"),
        (("a_b", "c"), "a%5Fb_c"),
        (("a", "b_c"), "a_b%5Fc"),
        ((None,), "%NULL"),
        (("None", None, ""), "None_%NULL_%00"),
        (("\u3000",), "%E3%80%80"),
        (("温度-1.5:x",), "温度-1.5:x"),
    ],
)
def test_keys(parts: tuple[str | None, ...], key: str) -> None:
    assert row_key(parts) == key


@given(KEYS)
def test_two_rows_have_two_keys(keys: tuple[tuple[str | None, ...], tuple[str | None, ...]]) -> None:
    one, other = map(row_key, keys)
    assert (one == other) == (keys[0] == keys[1])
    assert one.split() == [one]
