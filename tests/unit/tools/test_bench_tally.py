"""The benchmark refuses to compare unequal work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench import __main__ as command_line
from bench.client.alone import growth_mb
from bench.client.cases import JAVA_PULL, Case, compare
from bench.client.lab import Lab
from bench.client.ours import Sums
from bench.common.config import JAVA_DEFAULTS, Plan
from bench.common.report import BEGIN, END, Report, table
from bench.common.rows import Row, Spread
from bench.common.tally import QUEUE_FACTOR, Tally, UnequalWork, offsets_sum, require_equal
from rmqio.model import Record

WORK = Tally(count=10, bytes=1000, offsets=123, crcs=456)
PLAN = Plan(messages=10, repeats=2, sizes=(100,))


def test_equal_work_passes() -> None:
    require_equal("case", {"ours": WORK, "Java": WORK})


@pytest.mark.parametrize("field", ["count", "bytes", "offsets", "crcs"])
def test_each_sum_that_differs_fails_and_is_named(field: str) -> None:
    changed: dict[str, Any] = {field: getattr(WORK, field) + 1}
    with pytest.raises(UnequalWork, match=rf"case: .* {field} of ours is \d+, of Java \d+"):
        require_equal("case", {"ours": WORK, "Java": replace(WORK, **changed)})


def test_a_sum_that_one_side_does_not_make_is_not_compared() -> None:
    require_equal("case", {"ours": Tally(10), "Java": WORK})


def test_a_sum_is_compared_among_those_that_have_it() -> None:
    with pytest.raises(UnequalWork, match="crcs of Java"):
        require_equal("case", {"ours": Tally(10), "Java": WORK, "other": replace(WORK, crcs=1)})


def record(queue_id: int, offset: int, body: bytes = b"x") -> Record:
    return Record("t", "b", queue_id, offset, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", len(body) * 7, 0)


def sums(*parts: tuple[int, list[int]]) -> Sums:
    total = Sums()
    for queue_id, offsets in parts:
        total.add(queue_id, [record(queue_id, offset) for offset in offsets])
    return total


def test_the_sum_of_offsets_does_not_depend_on_the_order() -> None:
    assert sums((0, [0, 1]), (1, [5, 6])).answer(1.0) == sums((1, [6]), (0, [1, 0]), (1, [5])).answer(1.0)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([(0, [0, 1]), (1, [5, 7])], id="another offset"),
        pytest.param([(0, [0, 0]), (1, [5, 6])], id="one twice, one missing"),
        pytest.param([(1, [0, 1]), (0, [5, 6])], id="other queues"),
        pytest.param([(0, [1, 5]), (1, [0, 6])], id="exchanged between queues"),
    ],
)
def test_the_sum_of_offsets_tells_which_messages_were_read(other: list[tuple[int, list[int]]]) -> None:
    assert sums((0, [0, 1]), (1, [5, 6])).answer(1.0)["offsets"] != sums(*other).answer(1.0)["offsets"]


def test_the_sum_of_offsets_is_the_one_of_the_java_side() -> None:
    assert offsets_sum(2, 10) == 3 * 10 * QUEUE_FACTOR % 2**64
    source = Path(__file__).parents[3] / "bench" / "java" / "JavaPeer.java"
    assert f"QUEUE_FACTOR = 0x{QUEUE_FACTOR:X}L" in source.read_text(encoding="utf-8")


class FakeLab:
    """A lab whose Java peer reads what it is told to have read."""

    def __init__(self, java: Tally) -> None:
        self.plan = PLAN
        self._java = java

    def loaded(self, size: int, count: int) -> str:
        return "topic"

    def java(self, line: str) -> dict[str, Any]:
        j = self._java
        return {"seconds": 2.0, "count": j.count, "bytes": j.bytes, "offsets": j.offsets, "crcs": j.crcs}


def run_against(java: Tally, ours: Callable[[bool], Tally]) -> list[Row]:
    case = Case("pull", "pull", lambda lab, size, warm_up: (1.0, ours(warm_up)), JAVA_PULL, 2.0)
    return compare(cast(Lab, FakeLab(java)), [case], 100, {100: JAVA_DEFAULTS})


def test_a_comparison_gives_the_ratio_of_the_rates() -> None:
    (row,) = run_against(WORK, lambda warm_up: WORK)
    assert row.ratio == Spread(2.0, 2.0, 2.0)
    assert row.met is True


def test_a_comparison_of_unequal_work_fails() -> None:
    with pytest.raises(UnequalWork, match="pull, 100 B"):
        run_against(replace(WORK, count=9), lambda warm_up: WORK)


def test_unequal_work_fails_in_timed_repeats_too() -> None:
    with pytest.raises(UnequalWork):
        run_against(WORK, lambda warm_up: WORK if warm_up else Tally(9))


ROWS = [
    Row.ratio_of("pull | count", 100, [300.0, 100.0, 200.0], [100.0, 100.0, 100.0], 2.0),
    Row.ratio_of("send", 100, [50.0], [100.0], 1.0),
    Row.limit_of("memory", 0, [299.0], "MB", 300),
    Row.limit_of("start-up", 0, [12.0, 14.0], "ms", None),
]


def test_rows_know_whether_they_met_their_target() -> None:
    assert [row.met for row in ROWS] == [True, False, True, None]
    assert ROWS[0].ratio == Spread(2.0, 1.0, 3.0)


def test_the_table_marks_what_missed_its_target() -> None:
    lines = table(ROWS).splitlines()
    assert ["MISSED" in line for line in lines] == [False, False, True, False, False]


def test_markdown_replaces_what_stands_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old{END}\nafter\n")
    report = Report(PLAN.describe(), rows=ROWS)
    report.write_markdown(page)
    report.write_markdown(page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert text.count("pull \\| count") == 1


def test_figures_of_a_busy_machine_carry_a_warning() -> None:
    assert "busy" not in Report(PLAN.describe(), 0.1, rows=ROWS).markdown()
    assert "load average 7.0" in Report(PLAN.describe(), 7.0, rows=ROWS).markdown()


def test_growth_is_what_came_after_a_fifth() -> None:
    assert growth_mb([(0.1, 90.0), (0.2, 100.0), (0.3, 98.0), (0.9, 104.0), (1.0, 101.0)]) == 4.0
    assert growth_mb([(0.1, 120.0), (0.5, 100.0)]) == 0.0


@pytest.mark.parametrize(
    ("arguments", "raised", "status"),
    [
        pytest.param([], UnequalWork("pull: unequal"), 1, id="unequal work fails"),
        pytest.param([], None, 0, id="a missed target is told"),
        pytest.param(["--strict"], None, 3, id="a missed target fails when strict"),
    ],
)
def test_exit_status(
    arguments: list[str],
    raised: Exception | None,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(names: object, plan: object) -> Report:
        if raised is not None:
            raised.__traceback__ = None
            raise raised
        return Report(PLAN.describe(), rows=ROWS)

    monkeypatch.setattr(command_line, "run", run)
    monkeypatch.setattr(command_line, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
    assert command_line.main(["pull", *arguments]) == status
    output = capsys.readouterr()
    assert ("unequal" in output.err) == (raised is not None)
    assert ("MISSED: send, 100 B" in output.out) == (raised is None)


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parse(["pul"])
    assert "no such case: pul" in capsys.readouterr().err
