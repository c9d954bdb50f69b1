"""Numbers of JSON that go on have all their digits, and are floats for all who know floats only."""

from __future__ import annotations

import copy
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest
from apache_beam import coders
from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.serde.strict_json import JsonEncoder, JsonNumber, exact_float, json_value, may_be_rounded


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
            assert JsonEncoder().encode({"a": [each, "b"]}) == f'{{"a":[{text},"b"]}}'
    if "99999" not in text:
        assert Decimal(JsonEncoder().encode(found)) == Decimal(text)


_NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,17})([.]0{0,400}[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


@given(st.lists(_NUMBERS | st.just('"e-100 1.2.3"'), min_size=1))
@example(["0." + "0" * 330 + "1"])
@example(["0." + "0" * 400 + "1"])
@example(["0." + "0" * 318 + "12345678"])
@example(["0." + "0" * 250 + "1e-99"])
def test_what_is_said_to_be_exact_is_exact(texts: list[str]) -> None:
    text = f"[{','.join(texts)}]"
    reference = json.loads(text, parse_float=exact_float)
    for given_text in (text, text.encode(), bytearray(text.encode())):
        assert list(map(repr, json_value(given_text))) == list(map(repr, reference))
        kept = [each for each in reference if type(each) is JsonNumber]
        assert may_be_rounded(given_text) or not kept


@pytest.mark.skipif(may_be_rounded("[]"), reason="the C extension is not built: no body is quick")
@pytest.mark.parametrize(
    "text",
    ["[0.1,-12.75,1234567.89]", "1700000000.123456", "1e5", "-1.5E-10", "12345678901234567890123", '"浙 1.2.3"',
     "0.00000000000000000001", "", ".", "123e", '"550e8400-e29b-41d4-a716-446655440000"', "[1e99, 1e-9]"],
)  # fmt: skip
def test_ordinary_numbers_are_not_looked_at_one_by_one(text: str) -> None:
    assert not may_be_rounded(text)
    assert not may_be_rounded(text.encode())


@pytest.mark.parametrize("is_nested", [False, True])
def test_what_default_returns_keeps_its_digits(is_nested: bool) -> None:
    digits = "0.12345678901234567890"

    def default(value: object) -> object:
        if isinstance(value, complex):
            return {"a": b""} if is_nested else [JsonNumber(digits)]
        return (JsonNumber(digits), 0.5)

    expected = f'{{"a":[{digits},0.5]}}' if is_nested else f"[{digits}]"
    assert JsonEncoder(default=default).encode([1j]) == f"[{expected}]"
    assert JsonEncoder(default=default).encode([JsonNumber(digits), 1j]) == f"[{digits},{expected}]"


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
        text = JsonEncoder(ensure_ascii=ascii_only, indent=2 if ascii_only else None).encode(value)
        again = JsonEncoder().encode(json_value(text))
        assert json.loads(again, parse_float=Decimal) == json.loads(text, parse_float=Decimal)
        assert text.isascii() or not ascii_only


@pytest.mark.parametrize("number", [float("nan"), float("inf"), [-float("inf"), JsonNumber("1e400")]])
def test_what_json_lacks_is_an_error(number: object) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        JsonEncoder().encode({"a": number})


def test_beam_keeps_the_digits_and_takes_no_such_key() -> None:
    """Two texts can be one number, and two numbers one float: what is one key is for the pipeline to decide."""
    number, coder = JsonNumber("0.12345678901234567890"), coders.registry.get_coder(Any)
    assert repr(coder.decode(coder.encode(number))) == "0.12345678901234567890"
    with pytest.raises(TypeError, match="Unable to deterministically encode"):
        coder.as_deterministic_coder("GroupByKey").encode(number)
