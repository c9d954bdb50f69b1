"""Bodies that are events, decoded with msgspec and without it: both take the same, and give the same values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import SerdeError
from rmqio.serde import json_objects
from rmqio.serde.json_objects import object_of

INFINITE = float("inf")
GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b' {"a": 1, "a": 2.0}\n', {"a": 2.0}),
    (b'{"a": "\\ud83d\\ude00 \xe6\xb5\x99"}', {"a": "\U0001f600 \u6d59"}),
    (b'{"a": 1e999, "b": -1e999}', {"a": INFINITE, "b": -INFINITE}),
    (b'{"a": %b}' % (b"9" * 5_000), {"a": INFINITE}),
    (b'{"a": 12345678901234567890123}', {"a": 12345678901234567890123}),
]
BAD: list[tuple[bytes, str]] = [
    (b"", "is not JSON"),
    (b"{", "is not JSON"),
    (b"{} {}", "is not JSON"),
    (b'{"a": NaN}', "is not JSON"),
    (b'{"a": -Infinity}', "is not JSON"),
    (b'{"a": 1e999, "b": NaN}', "is not JSON: NaN is not JSON"),
    (b"\xef\xbb\xbf{}", "is not JSON"),
    (b'{"a": "\\ud800"}', "is not JSON"),
    (b'{"\\udc00": 1}', "is not JSON"),
    (b'{"a": 1e999, "b": "\\ud800"}', "is not JSON: half of a surrogate pair"),
    (b'{"a": "\\ud800"}', "is not JSON: half of a surrogate pair"),
    (b'{"\\udc00": 1}', "is not JSON: half of a surrogate pair"),
    (b'"\\ud800\\u0041"', "is not JSON: half of a surrogate pair"),
    (b'{"a": "\\ud83d\\ude00', "is not JSON: Unterminated string"),
    (b'{"a": 1e999, "b": "\xed\xa0\x80"}', "is not UTF-8: byte 19"),
    (b'{"a": "\xff"}', "is not UTF-8: byte 7"),
    ('{"a": 1}'.encode("utf-16"), "is not"),
    (b'{"a": "\n"}', "is not JSON"),
    (b"[]", "is JSON, but not an object: a list"),
    (b"1e999", "is JSON, but not an object: a number"),
    (b"null", "is JSON, but not an object: null"),
    (b'"x"', "is JSON, but not an object: a text"),
    (b'{"a": ' + b"[" * 100_000, "is nested too deep"),
]


@pytest.fixture(params=["msgspec", "json"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "json":
        monkeypatch.setattr(json_objects, "msgspec", None)
    else:
        pytest.importorskip("msgspec", reason="the extra json is not installed")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("body", "found"), GOOD)
def test_a_body_is_an_event(body: bytes, found: dict[str, Any]) -> None:
    for is_exact in (False, True):
        assert object_of(body, exact=is_exact) == object_of(bytearray(body), exact=is_exact) == found


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("tail", ["", ', "b": 0.84743373693723267', ' , "c": "\\u6d59", "d": 1.5, "e": 1E-400'])
def test_exact_numbers_have_their_digits(tail: str) -> None:
    body = f'{{"a": 0.8474337369372327{tail}}}'.encode()
    found = object_of(body, exact=True)
    assert {name: str(each) for name, each in found.items()} == json.loads(body, parse_float=str)


_PIECES = st.sampled_from([
    b"NaN", b"1", b"-", b"0", b".5", b"e9", b"e999", b'"', b"\\u", b"d83d", b"de00", b"0041", b"\\", b"x", b"[", b"]",
    b",", b"{", b"}", b'"k":', b" ", b"\t", b"\0", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"true", b"null",
    b"9" * 4_301,
])  # fmt: skip


@given(st.lists(_PIECES, max_size=8).map(b"".join))
@settings(max_examples=500, deadline=None)
def test_both_take_the_same_bodies(value: bytes) -> None:
    pytest.importorskip("msgspec", reason="the extra json is not installed")

    def outcome(body: bytes) -> str:
        try:
            return json.dumps(object_of(body))
        except SerdeError as error:
            return str(error).split(":")[0]

    for body in (value, b'{"k": %b}' % value, b'{"k": "%b"}' % value):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_objects, "msgspec", None)
            plain = outcome(body)
        quick = outcome(body)
        # What is wrong twice has two reasons, and the libraries begin at different ends.
        assert (quick == plain) or {quick, plain} == {"the body is not JSON", "the body is not UTF-8"}, body
