"""Keys as bytes: equal for what SQL takes as equal."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="SQL needs the extra 'sql'")

from rmqio.sql.rows import key_bytes


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
