"""Levels say which schemas must read which others."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.serde.avro.compatibility import Incompatibility, Level, check
from tests.helpers.serde.avro_definitions import A, field, record

V1 = record("R", A)
V2 = record("R", A, field("b", "int", 0))
V3 = record("R", A, field("b", "int"))  # reads V2 but not V1
MISSING = "the writer has no such field, and the reader no default for it"


@pytest.mark.parametrize(
    ("level", "new", "before", "expected"),
    [
        (Level.NONE, "int", ["string"], []),
        (Level.BACKWARD, V3, [], []),
        (Level.BACKWARD, V3, [V1, V2], []),
        (Level.BACKWARD_TRANSITIVE, V3, [V1, V2], ["v3 cannot read v1: R.b"]),
        (Level.BACKWARD, V1, [V3], []),
        (Level.FORWARD, V1, [V3, V2], []),
        (Level.FORWARD_TRANSITIVE, V1, [V3, V2], ["v1 cannot read v3: R.b"]),
        (Level.FORWARD, V1, [V3], ["v1 cannot read v2: R.b"]),
        (Level.FORWARD, V3, [V1], []),
        (Level.FULL, V1, [V3], ["v1 cannot read v2: R.b"]),
        (Level.FULL, V3, [V1], ["v2 cannot read v1: R.b"]),
        (Level.FULL, V3, [V1, V2], []),
        (Level.FULL_TRANSITIVE, V3, [V1, V2], ["v3 cannot read v1: R.b"]),
        (Level.FULL_TRANSITIVE, V2, [V1, V1], []),
    ],
)
def test_a_level_says_who_must_read_whom(level: Level, new: Any, before: list[Any], expected: list[str]) -> None:
    assert check(new, before, level) == [Incompatibility(path, MISSING) for path in expected]


def test_versions_may_have_their_own_numbers() -> None:
    found = check(V3, [V1, V2], Level.BACKWARD_TRANSITIVE, versions=[4, 7, 9])
    assert [path for path, _ in found] == ["v9 cannot read v4: R.b"]
    with pytest.raises(LocalError, match="2 numbers for 3 schemas"):
        check(V3, [V1, V2], Level.BACKWARD, versions=[1, 2])


def test_levels_are_confluents_words_in_either_case() -> None:
    assert Level("FULL_TRANSITIVE") is Level("full_transitive") is Level.FULL_TRANSITIVE
    with pytest.raises(ValueError, match="SIDEWAYS"):
        Level("SIDEWAYS")
