"""The page of capabilities has the table of `rmqio.runners.capabilities`, and each test of it is there and runs."""

from __future__ import annotations

from typing import Final

import pytest

pytest.importorskip("pyspark", reason="the tests of the Spark runner cannot be looked at without it")

from rmqio.runners.capabilities import TABLE, Cell, Mode, Requirement, Verdict
from tests.helpers.named_tests import ROOT, problem


def table() -> str:
    """As the page has it: each cell is a link to the first test that shows it."""
    links: dict[str, str] = {}

    def shown(cell: Cell) -> str:
        if not cell.tests:
            return cell.verdict.value
        return f"[{cell.verdict.value}][{links.setdefault(cell.tests[0], f't{len(links) + 1}')}]"

    rows = [["", *(mode.value for mode in Mode)], ["---"] * (len(Mode) + 1)]
    rows += [[need.value, *map(shown, row.values())] for need, row in TABLE.items()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    parts = ((link, *test.split("::", 1)) for test, link in links.items())
    return "\n".join([*lines, "", *(f'[{link}]: ../{file} "{name}"' for link, file, name in parts)])


def test_the_page_has_the_table() -> None:
    assert table() in (ROOT / "docs" / "capabilities.md").read_text(), f"docs/capabilities.md must have:\n\n{table()}"


STREAMS: Final = "tests/runners/spark/streaming/test_pipelines.py"
OF_THE_REPORT: Final = "tests/unit/runners/test_report.py::"
"""A refused pipeline does not run, and a warning is about what comes after a run, or never: the tests of the report,
which go through all modes, show both."""


@pytest.mark.parametrize(
    ("need", "mode", "test"),
    [(need, mode, test) for need, row in TABLE.items() for mode, cell in row.items() for test in cell.tests],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_test_that_is_named_runs_in_the_mode_of_its_cell(need: Requirement, mode: Mode, test: str) -> None:
    ran = TABLE[need][mode].verdict is Verdict.YES or not test.startswith(OF_THE_REPORT)
    assert problem(test, mode=mode if ran else None) is None


def test_each_cell_names_a_test() -> None:
    unshown = [(need, mode) for need, row in TABLE.items() for mode, cell in row.items() if not cell.tests]
    assert {TABLE[need][mode].verdict for need, mode in unshown} == {Verdict.NONE}


@pytest.mark.parametrize(
    ("test", "mode", "runs"),
    [
        (
            "tests/runners/spark/streaming/test_pipelines.py::test_state_and_timers_of_both_kinds",
            Mode.SPARK_STREAMING,
            True,
        ),
        ("tests/runners/spark/streaming/test_pipelines.py::test_state_and_timers_of_both_kinds", Mode.SPARK, False),
        ("tests/runners/test_capabilities.py::test_state_by_key", Mode.FLINK, True),  # one of its parameters
        ("tests/runners/test_capabilities.py::test_state_by_key", Mode.SPARK, False),
        ("tests/runners/spark/batch/test_beam_suite.py::TestOnSpark::test_windowing", Mode.SPARK, True),
        ("tests/runners/spark/batch/test_beam_suite.py::TestOnSpark::test_assert_that", Mode.SPARK, False),
        (
            "tests/unit/runners/spark/streaming/state/test_user_state.py::test_a_range_of_an_ordered_list_is_cut_out_of_what_was_kept",
            Mode.SPARK,
            False,
        ),
    ],
)
def test_a_test_without_the_marker_of_a_mode_does_not_show_it(test: str, mode: Mode, runs: bool) -> None:
    assert problem(test) is None
    assert problem(test, mode=mode) == (
        None if runs else f"does not run on {mode.value}: it has no marker shows({mode})"
    )
