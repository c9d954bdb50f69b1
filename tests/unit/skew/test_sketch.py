"""The sketch of heavy keys, beside exact counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from rmqio.skew.salted import HeavyKeys

KEYS = st.lists(st.integers(0, 40).map(lambda n: n * n // 40), max_size=400)  # small keys are heavy


@given(KEYS, st.integers(1, 8))
def test_counts_are_never_too_high_and_no_heavy_key_is_missing(keys: list[int], capacity: int) -> None:
    sketch = HeavyKeys(capacity)
    exact: Counter[Hashable] = Counter(keys)
    for key in keys:
        assert sketch.add(key) <= exact[key]
    assert sketch.total == len(keys)
    assert sketch.error <= len(keys) / (capacity + 1)
    assert len(sketch.counts) <= 2 * capacity
    for heavy in sketch.heaviest(100):
        assert heavy.at_least <= exact[heavy.key] <= heavy.at_most
    assert {key for key, count in exact.items() if count > sketch.error} <= set(sketch.counts)


@given(KEYS, KEYS, st.integers(1, 8))
def test_two_sketches_together_keep_their_promise(one: list[int], other: list[int], capacity: int) -> None:
    first, second = HeavyKeys(capacity), HeavyKeys(capacity)
    exact: Counter[Hashable] = Counter(one + other)
    for sketch, keys in ((first, one), (second, other)):
        for key in keys:
            sketch.add(key)
    first.merge(second)
    assert first.total == exact.total()
    assert all(each.at_least <= exact[each.key] <= each.at_most for each in first.heaviest(100))
    assert {key for key, count in exact.items() if count > first.error} <= set(first.counts)


def test_what_was_hot_long_ago_is_forgotten() -> None:
    sketch = HeavyKeys(4)
    sketch.add("old", 1_000)
    for _ in range(9):
        sketch.halve()
    sketch.add("new", 10)
    assert [each[:2] for each in sketch.heaviest(2)] == [("new", 10), ("old", 1)]
    sketch.halve()
    assert [each.key for each in sketch.heaviest(2)] == ["new"]
    assert sketch.total == 5
