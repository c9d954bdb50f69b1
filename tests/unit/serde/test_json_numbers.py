"""Numbers of JSON that go on have all their digits, and are floats for all who know floats only."""

from __future__ import annotations

import copy
import json
import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.serde.json_numbers import JsonNumber, json_text, json_value


@pytest.mark.parametrize(
    ("text", "is_exact_float"),
    [
        ("12345678901234567890.0123456789", False), ("0.1234567890123456789", False), ("9007199254740993.0", False),
        ("1e400", False), ("-1e-400", False), ("1.234567e-320", False), ("1e99999999999999999999", False),
        ("0.1", True), ("123456789.123456", True), ("0.30000000000000004", True), ("1e5", True), ("-0.0", True),
        ("12345678901234567890123", True),
    ],
)  # fmt: skip
def test_digits_are_kept(text: str, is_exact_float: bool) -> None:
    found = json_value(text)
    assert (type(found) is not JsonNumber) is is_exact_float
    if not is_exact_float:
        assert found == float(text) == json.loads(json.dumps(found)), "to others, it is the nearest float"
        for each in (found, pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            assert json_text({"a": [each, "b"]}) == f'{{"a":[{text},"b"]}}'
    if "99999" not in text:
        assert Decimal(json_text(found)) == Decimal(text)


@given(
    st.recursive(
        st.decimals(allow_nan=False, allow_infinity=False).map(lambda each: JsonNumber(f"{each:e}"))
        | st.text()
        | st.integers()
        | st.booleans()
        | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_any_value_comes_back(value: object) -> None:
    for ascii_only in (False, True):
        text = json_text(value, ensure_ascii=ascii_only, indent=2 if ascii_only else None)
        again = json_text(json_value(text))
        assert json.loads(again, parse_float=Decimal) == json.loads(text, parse_float=Decimal)
        assert text.isascii() or not ascii_only


@pytest.mark.parametrize("number", [float("nan"), float("inf"), [-float("inf"), JsonNumber("1e400")]])
def test_what_json_lacks_is_an_error(number: object) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        json_text({"a": number})
