"""docs/spark-runner.md and spark_runner.toml agree: a test that runs shows each capability on the page, row by row."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio.runners.capabilities import Mode
from tests.helpers.named_tests import ROOT, problem

PAGE: Final = ROOT / "docs" / "spark-runner.md"
SHOWN_BY: Final[dict[str, dict[str, list[str]]]] = tomllib.loads(
    Path(__file__).with_name("spark_runner.toml").read_text()
)
"""The tests of each row, by its group and its name."""

# From Beam's matrix: website/www/site/data/capability_matrix.yaml in apache/beam at 06f56f5. The last group is ours.
ROWS: Final = {
    "What is being computed?": [
        "ParDo",
        "GroupByKey",
        "Flatten",
        "Combine",
        "Composite Transforms",
        "Side Inputs",
        "Source API",
        "Metrics",
        "Stateful Processing",
    ],
    "Bounded Splittable DoFn Support Status": [
        "Base",
        "Side Inputs",
        "Splittable DoFn Initiated Checkpointing",
        "Dynamic Splitting",
        "Bundle Finalization",
    ],
    "Unbounded Splittable DoFn Support Status": [
        "Base",
        "Side Inputs",
        "Splittable DoFn Initiated Checkpointing",
        "Dynamic Splitting",
        "Bundle Finalization",
    ],
    "Where in event time?": [
        "Global windows",
        "Fixed windows",
        "Sliding windows",
        "Session windows",
        "Custom windows",
        "Custom merging windows",
        "Timestamp control",
    ],
    "When in processing time?": [
        "Configurable triggering",
        "Event-time triggers",
        "Processing-time triggers",
        "Count triggers",
        "Composite triggers",
        "Allowed lateness",
        "Timers",
    ],
    "How do refinements relate?": ["Discarding", "Accumulating"],
    "Additional common features not yet part of the Beam model": ["Drain", "Checkpoint", "Key-ordered delivery"],
    "Portability and Python": [
        "Bag state",
        "Value state",
        "Combining state",
        "Set state",
        "Ordered list state",
        "Map state",
        "Event-time timers",
        "Processing-time timers",
        "Dynamic timers",
        "Stable input",
        "Time-sorted input",
        "DoFn lifecycle",
        "Batched DoFns",
        "Combiner lifting and packing",
        "Reshuffle",
        "Redistribute",
        "Value providers",
        "Cross-language transforms",
        "Unbounded pipelines",
    ],
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. `group` is the heading above it."""

    group: str
    name: str
    ours: str
    portable: str
    tests: tuple[str, ...]


def rows_of(page: str, shown_by: dict[str, dict[str, list[str]]]) -> list[Row]:
    """Returns the rows below "## Capabilities", with their tests."""
    found = []
    for group, text in _sections(_section(page, "Capabilities"), "###"):
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 3 and cells[0] and not set(cells[0]) <= set("-:"):
                tests = shown_by.get(group, {}).get(cells[0], [])
                found.append(Row(group, cells[0], cells[1], cells[2], tuple(tests)))
    return found


def _section(page: str, title: str) -> str:
    return dict(_sections(page, "##"))[title]


def _sections(text: str, level: str) -> Iterator[tuple[str, str]]:
    parts = re.split(rf"^{level} (.+)$", text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def disagreements(rows: list[Row], expected: dict[str, list[str]]) -> list[str]:
    """Returns what is wrong with a table: missing or repeated rows, and claims that no test supports."""
    names = [(row.group, row.name) for row in rows]
    wanted = [(group, name) for group, all_names in expected.items() for name in all_names]
    found = [f"{each}: no row" for each in wanted if each not in names]
    found += [f"{each}: not a row of the matrix" for each in names if each not in wanted]
    found += [f"{each}: twice" for each in set(names) if names.count(each) > 1]
    for row in rows:
        answer, _, reason = row.ours.partition(":")
        where = f"{row.group} / {row.name}"
        if answer not in ("yes", "partly", "no") or (answer == "yes") == bool(reason.strip()):
            found.append(f"{where}: {row.ours!r} is not 'yes', 'partly: reason' or 'no: reason'")
        if answer != "no" and not row.tests:
            found.append(f"{where}: no test")
        problems = {test: shows_nothing(test, may_fail=answer == "no") for test in row.tests}
        wrong = [f"{where}: {test} {why}" for test, why in problems.items() if why]
        if answer != "no" and row.tests and not wrong:
            wrong = [f"{where}: no test on {mode.value}" for mode in modes_of(reason) if not any_shows(row.tests, mode)]
        found += wrong
    return found


def modes_of(reason: str) -> list[Mode]:
    """Returns the modes that a row speaks of."""
    return [Mode.SPARK_STREAMING] if "--streaming" in reason else [Mode.SPARK]


def any_shows(tests: Iterable[str], mode: Mode) -> bool:
    return any(problem(path_of(test), mode=mode) is None for test in tests)


def path_of(test: str) -> str:
    """Returns the path of a test that the page names: from tests/runners on, or whole."""
    return test if test.startswith("tests/") else f"tests/runners/{test}"


def shows_nothing(test: str, *, may_fail: bool) -> str | None:
    """Returns why a named test shows nothing; None: it runs on Spark, or shows a part that needs no Spark."""
    path = path_of(test)
    if may_fail or needs_no_spark(test):
        return problem(path, may_fail=may_fail)
    found = [problem(path, mode=mode) for mode in (Mode.SPARK, Mode.SPARK_STREAMING)]
    return None if None in found else found[0]


def needs_no_spark(test: str) -> bool:
    """Returns whether a test shows what a worker does by itself, or what is refused before anything runs."""
    return test.startswith("tests/unit/runners/spark/worker/test_task.py::") or "_is_refused_" in test


def test_the_table_and_the_tests_agree() -> None:
    found = disagreements(rows_of(PAGE.read_text(), SHOWN_BY), ROWS)
    assert not found, "\n".join(found)
    assert {group: [*rows] for group, rows in SHOWN_BY.items()} == ROWS


def test_what_beams_own_class_for_its_portable_runner_skips_is_said_as_it_is() -> None:
    claims = [
        (row.name, verb, test)
        for row in rows_of(PAGE.read_text(), SHOWN_BY)
        for verb, test in re.findall(r"\b(skips|runs) `(\w+)`", row.portable)
    ]
    everywhere = _methods("fn_api_runner/fn_runner_test.py", "FnApiRunnerTest")
    here: dict[str, str] = {}
    for file, name in (("portable_runner_test.py", "PortableRunnerTest"), ("spark_runner_test.py", "SparkRunnerTest")):
        here |= _methods(file, name)
    skipped = {name for name, text in here.items() if "SkipTest" in text}
    skipped |= {name for name, text in everywhere.items() if "unittest.skip(" in text or "SparkRunnerTest" in text}
    wrong = [claim for claim in claims if claim[2] not in everywhere or (claim[1] == "skips") != (claim[2] in skipped)]
    assert claims
    assert wrong == []


def _methods(file: str, name: str) -> dict[str, str]:
    """Returns the source of a test class's methods. Does not import the class, which would look for Docker."""
    path = Path(beam.__file__).parent / "runners" / "portability" / file
    classes = [each for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef)]
    (found,) = (each for each in classes if each.name == name)
    return {each.name: ast.unparse(each) for each in found.body if isinstance(each, ast.FunctionDef)}


GOOD: Final = "spark/batch/test_runner.py::test_state_of_every_kind"
PART: Final = "tests/unit/runners/spark/worker/test_task.py::test_nothing_is_left_on_disk"


def complaints(*lines: tuple[str, str, str, str]) -> list[str]:
    """Returns what is wrong with a table of these rows and their tests, if rows a and b of one group are required."""
    head = "## Capabilities\n\n### Group\n\n| | ours | portable |\n|---|---|---|\n"
    page = head + "".join(f"| {' | '.join(line[:3])} |\n" for line in lines) + "\n## More\n"
    shown_by = {"Group": {line[0]: [each for each in line[3].split(", ") if each] for line in lines}}
    return disagreements(rows_of(page, shown_by), {"Group": ["a", "b"]})


def test_a_table_that_agrees_has_no_complaints() -> None:
    assert complaints(("a", "yes", "-", GOOD), ("b", "no: it cannot be done", "-", "")) == []
    assert complaints(("a", "yes", "-", f"{GOOD}, {PART}"), ("b", "no: it cannot be done", "-", PART)) == []


@pytest.mark.parametrize(
    ("ours", "tests", "complaint"),
    [
        ("yes", "", "no test"),
        ("maybe", GOOD, "is not 'yes'"),
        ("no", "", "'no' is not"),
        ("no:", "", "'no:' is not"),
        ("partly", GOOD, "'partly' is not"),
        ("yes", "tests/unit/runners/spark/worker/test_task.py::test_that_nobody_wrote", "does not exist"),
        ("no: it cannot", "tests/unit/runners/spark/worker/test_task.py::test_that_nobody_wrote", "does not exist"),
        ("yes", "test_spark_nothing.py::test_one", "is in no test file"),
        ("yes", "tests/unit/runners/spark/worker/test_task.py::collect", "is not a test"),
        ("yes", "spark/batch/test_beam_suite.py::TestOnSpark::create_pipeline", "is not a test"),
        ("yes", "spark/batch/test_beam_suite.py::TestOnSpark::test_large_elements", "is skipped or expected to fail"),
        ("yes", "spark/batch/test_beam_suite.py::TestOnSpark::test_pardo_et_timer_with_no_firing", "may skip itself"),
        ("yes", f"{GOOD}, tests/unit/runners/spark/worker/test_task.py::test_that_nobody_wrote", "does not exist"),
        ("yes", PART, "no test on SparkRunner"),
        (
            "yes",
            f"{GOOD}, spark/batch/test_processes.py::test_user_code_runs_in_workers_and_in_several_tasks",
            "no marker",
        ),
        ("partly: with --streaming", GOOD, "no test on SparkRunner --streaming"),
    ],
)
def test_a_table_that_disagrees_is_found_out(ours: str, tests: str, complaint: str) -> None:
    (found,) = complaints(("a", ours, "-", tests), ("b", "yes", "-", GOOD))
    assert "Group / a: " in found
    assert complaint in found


@pytest.mark.parametrize(
    ("names", "complaint"),
    [(["a"], "('Group', 'b'): no row"), (["a", "b", "b"], "('Group', 'b'): twice"), (["a", "b", "c"], "not a row")],
)
def test_a_row_too_few_or_too_many_is_found_out(names: list[str], complaint: str) -> None:
    (found,) = complaints(*[(name, "yes", "-", GOOD) for name in names])
    assert complaint in found


@pytest.mark.parametrize("mark", [pytest.mark.skip, pytest.mark.xfail, pytest.mark.skipif(True, reason="not today")])
def test_a_test_that_is_marked_not_to_pass_shows_nothing(mark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = importlib.import_module("tests.runners.spark.batch.test_runner")
    marks = [*runner.test_state_of_every_kind.pytestmark, mark.mark]
    monkeypatch.setattr(runner.test_state_of_every_kind, "pytestmark", marks)
    (found,) = complaints(("a", "partly: a bit", "-", GOOD), ("b", "no: it cannot be done", "-", GOOD))
    assert "Group / a: " in found
    assert "is skipped" in found
