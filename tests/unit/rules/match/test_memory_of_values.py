"""The memory of values: on where values come again, off where they do not, and soon."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest

pytest.importorskip("re2", reason="the extra rules is not installed")

from rmqio.rules import Atom, Kind, Rule
from rmqio.rules.engine import compile_rules
from rmqio.rules.match.tables import Budget, Cache, Found

_SOME = Found((1,), (2,))


class _Used:
    """A memory, and what is looked up in it."""

    def __init__(self) -> None:
        self.computed = 0
        self.cache = Cache(self._compute, Budget(32 << 20))

    def _compute(self, value: object) -> Found | None:
        self.computed += 1
        return _SOME if value == "v7" else None

    def look(self, values: Iterable[str]) -> None:
        for value in values:
            self.cache.seen += 1
            assert self.cache[value] == (_SOME if value == "v7" else None)


def test_distinct_values_are_stored_for_a_short_while_only() -> None:
    used = _Used()
    used.look(f"a{number}" for number in range(9_000))
    assert not used.cache.is_on
    assert not used.cache
    largest = 0
    for start in range(9_000, 200_000, 1_000):
        used.look(f"a{number}" for number in range(start, start + 1_000))
        largest = max(largest, len(used.cache))
    assert largest <= 256  # it is tried again, with a sample
    assert used.computed == 200_000


@pytest.mark.parametrize("count", [6, 200, 2_000, 10_000, 20_000])
def test_values_that_come_again_are_remembered_however_many_there_are(count: int) -> None:
    used, drawn = _Used(), random.Random(count)
    for _ in range(40):
        used.look(f"v{drawn.randrange(count)}" for _ in range(5_000))
    assert used.cache.is_on
    before = used.computed
    used.look(f"v{drawn.randrange(count)}" for _ in range(5_000))
    assert used.computed - before < 50


def test_a_field_whose_values_change_their_nature_is_noticed() -> None:
    used, drawn = _Used(), random.Random(5)
    used.look(f"v{drawn.randrange(500)}" for _ in range(50_000))
    used.look(f"a{number}" for number in range(60_000))
    assert not used.cache.is_on
    for _ in range(30):
        used.look(f"v{drawn.randrange(500)}" for _ in range(5_000))
    assert len(used.cache) == 500


def test_values_are_kept_when_triggers_are_chosen_anew() -> None:
    rules = [Rule("r", Atom("a", Kind.CONTAINS, "x7")), Rule("s", Atom("b", Kind.CONTAINS, "y"))]
    matcher = compile_rules(rules)
    bodies = [json.dumps({"a": f"x{number % 50}", "b": "-"}).encode() for number in range(512)]
    before = matcher._tables
    while matcher._tables is before:
        matcher.find(bodies)
    cache = matcher._tables.lookups["a"].cache
    assert len(cache) == 50
    assert sum(found is not None for found in cache.values()) == 1
    assert len(matcher.find(bodies)[0]) == 11
