"""`bench.pairs`: both sides do the same work, or it says so, and what it calls worse."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="the case of SQL needs the extra 'sql'")

from bench.common.tally import UnequalWork
from bench.pairs import program
from bench.pairs.__main__ import compare, judged

MESSAGES = 60


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ([1.0, 1.0, 1.0], [1.06, 1.06, 1.06], "worse"),
        ([1.0, 1.0, 1.0], [1.04, 1.04, 1.04], ""),
        ([1.0, 1.0, 1.0], [0.5, 0.5, 0.5], ""),
        ([1.0, 1.2, 0.8], [1.1, 1.1, 1.1], ""),  # within the spread
        ([1.0, 1.2, 0.8], [1.3, 1.6, 1.1], "worse"),
        ([1.0, 1.0, 1.0], [1.0, 9.0, 1.0], ""),  # one run that something held up
    ],
)
def test_worse_is_beyond_five_percent_and_beyond_the_spread(base: list[float], head: list[float], said: str) -> None:
    assert judged(base, head)[2] == said


def run(case: str, server: str, messages: int) -> dict[str, Any]:
    return program.answer(case, server, messages)


@pytest.mark.parametrize("case", sorted(set(program.CASES) - set(program.ON_SPARK)))
def test_a_side_that_does_less_is_told(case: str) -> None:
    base, head = compare(case, run, run, MESSAGES, 2)
    assert len(base) == len(head) == 2

    def lazy(case: str, server: str, messages: int) -> dict[str, Any]:
        return {"seconds": 0.1, "work": 0}

    with pytest.raises(UnequalWork, match=f"^{case}: the work of base is .*, of head"):
        compare(case, run, lazy, MESSAGES, 1)
