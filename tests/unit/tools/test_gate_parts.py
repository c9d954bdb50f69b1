"""`make test-all` goes on where it was, and says what is known of a commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.gate.parts import PARTS, Kept, too_long
from tests.helpers.waiting import PATIENCE

FIRST, SECOND, *_ = PARTS
_REPORT: Final[dict[str, Any]] = {
    "commit": "c0ffee",
    "clean": True,
    "result": "passed",
    "passed": 7,
    "failed": 0,
    "skipped": 1,
    "seconds": {"all": 90},
}


@pytest.mark.parametrize(
    ("changes", "is_left"),
    [
        ({}, False),
        ({"result": "failed"}, True),
        ({"clean": False}, True),
        ({"commit": "decaf"}, True),
    ],
    ids=["passed", "failed", "other sources", "other commit"],
)
def test_only_what_passed_on_the_commit_is_left_out(changes: dict[str, Any], is_left: bool, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "c0ffee.json"
    Kept(file, "c0ffee").keep(SECOND, {**_REPORT, **changes})
    left = Kept(file, "c0ffee").left
    assert (SECOND in left) == is_left
    assert FIRST in left


def test_a_part_that_fails_later_has_not_passed(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "c0ffee.json", "c0ffee")
    kept.keep(FIRST, _REPORT)
    kept.keep(FIRST, {**_REPORT, "result": "failed"})
    assert FIRST in kept.left


def test_what_was_kept_and_cut_short_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "c0ffee.json"
    file.write_text('{"unit": {"result": "pas')
    Kept(file, "c0ffee").keep(FIRST, _REPORT)
    assert FIRST not in Kept(file, "c0ffee").left
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("seconds", "factor", "said"),
    [
        (1_500, "1", ""),
        (1_600, "1", "part sql took 26.7 minutes, of 25 at most: divide it"),
        (1_600, "1.3", ""),
        (2_400, "1.3", "part sql took 40.0 minutes, of 32 at most: divide it"),
    ],
)
def test_a_part_that_takes_too_long_is_told(
    seconds: int, factor: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, factor)
    assert too_long("sql", {**_REPORT, "seconds": {"all": seconds}}) == said


def test_two_clones_run_parts_at_once(tmp_path: Path) -> None:
    one, other = (Kept(tmp_path / "c0ffee.json", "c0ffee") for _ in range(2))
    one.keep(FIRST, _REPORT)
    other.keep(SECOND, _REPORT)
    assert {FIRST, SECOND}.isdisjoint(Kept(tmp_path / "c0ffee.json", "c0ffee").left)


def test_the_table_has_all_parts(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "c0ffee.json", "c0ffee")
    kept.keep(SECOND, _REPORT)
    commit, _, _, _, first, second, *_ = kept.table()
    assert commit == "Commit c0ffee"
    assert first == f"| 1 {FIRST} | - |  |  |  |  |"
    assert second == f"| 2 {SECOND} | passed | 7 | 0 | 1 | 1.5 |"
