"""Rows as bytes between steps: each value comes back. Keys as bytes: equal for what SQL takes as equal."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="SQL needs the extra 'sql'")

from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import key_bytes, pack, unpacker
from tests.helpers.oracles.grid import TYPES, VALUES
from tests.unit.sql.evaluating import type_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        ((0.0, "a"), (-0.0, "a")),
        ((1, (-0.0,)), (1, (0.0,))),
        (float("nan"), -float("nan")),
        ((float("nan"),), (-float("nan"),)),
        (Decimal("1.50"), Decimal("1.5")),
        ((Decimal("1.50"),), (Decimal("1.5"),)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (({1: [0.0], 2: None},), ({2: None, 1: [-0.0]},)),
    ],
)
def test_equal_values_are_one_key(one: Any, other: Any) -> None:
    assert key_bytes((one,)) == key_bytes((other,))
    assert key_bytes((one,)) != key_bytes((None,))


_NULL_KEYS = (
    ("MAP<STRING, INT>", {None: 1, "a": None}),
    ("MAP<DECIMAL(5, 2), ARRAY<DOUBLE>>", {None: [1.5, None]}),
    ("ROW<a ARRAY<MAP<BYTES, STRING>>, b MAP<ROW<x INT, y STRING>, DATE>>", ([{None: "x"}], {None: 1, (1, None): 2})),
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [*((kind, value) for kind in TYPES for value in VALUES[kind] if value != "\ud800"), *_NULL_KEYS],
    ids=itertools.count(1),
)
def test_a_value_comes_back(kind: str, value: Any) -> None:
    assert repr(unpacker([Field("x", type_of(kind))])(pack((value,)))) == repr((value,))
