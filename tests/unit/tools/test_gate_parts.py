"""`make test-all` goes on where it was, and says what is known of a commit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gate import parts
from tests.gate.parts import PARTS, Kept
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
        (1_500, "1", "25.0"),
        (1_600, "1", "26.7, of 25 at most: divide it"),
        (1_600, "1.3", "26.7"),
        (2_400, "1.3", "40.0, of 32 at most: divide it"),
    ],
)
def test_the_table_tells_that_a_part_took_too_long(
    seconds: int, factor: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a later run, on another machine."""
    monkeypatch.setenv(PATIENCE, factor)
    Kept(tmp_path / "c0ffee.json", "c0ffee").keep(FIRST, {**_REPORT, "seconds": {"all": seconds}})
    monkeypatch.setenv(PATIENCE, "4")
    assert Kept(tmp_path / "c0ffee.json", "c0ffee").table()[4] == f"| 1 {FIRST} | passed | 7 | 0 | 1 | {said} |"


def test_each_part_is_as_patient_as_the_machine_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it begins: the parts together take hours."""
    factors = []

    def run_part(name: str) -> int:
        factors.append(os.environ.get(PATIENCE))
        monkeypatch.setenv(PATIENCE, "3")
        (tmp_path / "gate.json").write_text(json.dumps(_REPORT))
        return 0

    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path))
    monkeypatch.setattr(parts, "run_part", run_part)
    monkeypatch.setattr(parts, "build_of", lambda name: tmp_path)
    monkeypatch.delenv(PATIENCE, raising=False)
    parts.main([])
    assert factors == [None] * len(PARTS)
    monkeypatch.setenv(PATIENCE, "2")
    parts.main(["--part", "1"])
    assert factors[-1] == "2"


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
