"""The standard library and msgspec decode every body alike: the same values, and the same errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.serde.json import TypedDecoder
from rmqio.serde.json_types import plan_of
from rmqio.serde.strict_json import NotJson
from tests.unit.serde.bodies import (
    BASKET,
    EVERYTHING,
    ORDER,
    Address,
    Basket,
    Checked,
    Everything,
    Line,
    Order,
    plain,
)

fast = pytest.importorskip("rmqio.serde.json_msgspec", reason="the fast path needs the extra 'json'")


def same_or_both_fail(decoder: TypedDecoder, body: bytes) -> None:
    def outcome(decode: Callable[[bytes], Any]) -> Any:
        try:
            return plain(decode(body))
        except NotJson as error:
            return str(error)

    expected = outcome(decoder.exact)
    assert outcome(decoder) == expected
    found = decoder.all([body])
    assert found is None or [plain(each) for each in found] == [expected]


DECODERS = {cls: TypedDecoder(plan_of(cls)) for cls in (Order, Basket, Everything, Checked, Address, Line)}
MUTANTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        [
            *(
                "2026-01-31",
                "2026-01-31T10:00:00Z",
                "2026-01-31 10:00:00+02:00",
                "2026-02-30",
                "10:00",
                "10:00:00.1234567",
            ),
            *(
                "24:00:00",
                "23:59:60",
                "1e5",
                "-0",
                "00",
                ".5",
                "4_2",
                "NaN",
                "Infinity",
                "AA==",
                "AA=",
                "-_",
                "red",
                "a\0",
            ),
            *("0001-01-01T00:00:00-23:59", "9999-12-31T23:59:59.9999999Z", str(uuid.UUID(int=5)), uuid.UUID(int=5).hex),
        ]
    ),
    st.sampled_from([[], {}, [1], {"sku": "x"}, [{"sku": "x", "count": None}], {"street": "y"}, {"number": 3}]),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(each, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


SEEDS: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Basket, {**BASKET, "color": "red", "tags": ["t"], "extra": {"a": [1.0, 2]}, "parent": {"sku": "p"}}),
    (Everything, EVERYTHING),
    (Checked, {"number": 3, "limit": 4}),
    (Address, {"street": "s", "zip": 1, "größe": 1}),
]


@given(st.sampled_from(SEEDS), st.data(), MUTANTS, st.booleans())
@settings(max_examples=600)
def test_both_decoders_agree_on_every_value_and_every_error(
    seed: tuple[Any, Any], data: st.DataObject, mutant: Any, is_ascii: bool
) -> None:
    cls, body = seed
    path = data.draw(st.sampled_from(list(paths(body))))
    text = json.dumps(replaced(body, path, mutant), ensure_ascii=is_ascii)
    same_or_both_fail(DECODERS[cls], text.encode("utf-8", "surrogatepass"))


@given(st.sampled_from(SEEDS), st.data())
@settings(max_examples=300)
def test_both_decoders_agree_on_broken_bytes(seed: tuple[Any, Any], data: st.DataObject) -> None:
    cls, body = seed
    text = bytearray(json.dumps(body, ensure_ascii=False).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    same_or_both_fail(DECODERS[cls], bytes(text))
