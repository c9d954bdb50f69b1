"""Selects the fast tests that run again with another Python, or with the oldest Beam, where results can differ.

And the sample of them for daily use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import pytest
from hypothesis import settings

from tests.gate.durations import seconds

Other = Literal["python", "beam", "daily"]

_OF_THE_REPOSITORY: Final = (
    "tests/examples/",
    "tests/programs/",
    "tests/unit/structure/test_beam_fence.py",
    "tests/unit/docs/test_contributing.py",
    "tests/unit/docs/test_names.py",
    "tests/unit/docs/test_shell.py",
    "tests/unit/docs/test_site.py",
    "tests/unit/structure/test_circles.py",
    "tests/unit/structure/test_layers.py",
    "tests/unit/structure/test_mirrors.py",
    "tests/unit/structure/test_no_pickle.py",
    "tests/unit/structure/test_targets.py",
    "tests/unit/tools/",
)
"""They look at the files of the repository, or at what tests and benchmarks use."""
_SCRIPTED: Final = ("tests/contract/faults/", "tests/unit/client/test_fault_matrix.py")
"""They go through everything that a server can do wrong. Each case runs the same code."""
_WITHOUT_BEAM: Final = (
    "tests/contract/",
    "tests/unit/cli/",
    "tests/unit/client/",
    "tests/unit/sql/analysis/",
    "tests/unit/sql/functions/",
    "tests/unit/sql/syntax/",
    "tests/unit/testing/",
    "tests/unit/topics/",
    "tests/unit/wire/",
)
"""They test modules that import neither Beam (see `test_layers`) nor another package of tests/oldest.txt."""
_COMPRESSION: Final = (
    "tests/unit/client/test_producer.py",
    "tests/unit/client/test_batches.py",
    "tests/unit/wire/stored/",
    "tests/unit/wire/test_bodies.py",
)
"""The tests among them that do, for lz4 and zstandard."""
_ORACLES: Final = (
    "tests/unit/sql/runtime/joins/test_subqueries.py",
    "tests/unit/sql/runtime/test_composed_queries.py",
    "tests/unit/sql/runtime/test_nexmark.py",
    "tests/unit/sql/transform/test_oracle.py",
)
"""They compare long results with DuckDB's. The tests beside them compile and run the same on each Python."""
LEFT_OUT: Final[dict[Other, tuple[str, ...]]] = {
    "python": _OF_THE_REPOSITORY + _SCRIPTED + _ORACLES,
    "beam": _OF_THE_REPOSITORY + _WITHOUT_BEAM,
    "daily": _SCRIPTED,
}
ALL_CASES: Final[dict[Other, tuple[str, ...]]] = {
    "python": (),
    "daily": (),
    "beam": (
        "tests/unit/runners/",
        "tests/unit/sql/transform/",
        "tests/unit/transforms/",
        "tests/unit/yaml/",
    ),
}
"""Tests that run with all their parameters. Each other test function runs with its first and its last parameters only,
on another Python with the first: the others are more data for one code. Transforms and runners are where one Beam
differs from another by case."""

_DAILY_S: Final = 0.1
"""Four of five functions take less for a test: together a minute, the others ten."""


def is_left_out(path: str, other: Other) -> bool:
    """Whether none of its tests run again: it need not be imported. `path`: from the root; a folder has a slash."""
    return path.startswith(LEFT_OUT[other]) and not any(
        path.startswith(each) or each.startswith(path) for each in _COMPRESSION
    )


def run_again(node_ids: Sequence[str], other: Other) -> set[str]:
    """Returns the ids of the tests to run, of all ids in their order."""
    kept = [each for each in node_ids if not each.startswith(LEFT_OUT[other]) or (each.startswith(_COMPRESSION))]
    if other == "daily":
        kept = [each for each in kept if seconds(each) < _DAILY_S]
    whole = {each for each in kept if each.startswith(ALL_CASES[other])}
    return whole | of_each_function((each for each in kept if each not in whole), has_last=other != "python")


def of_each_function(node_ids: Iterable[str], *, has_last: bool) -> set[str]:
    """Returns the first case of each test function, and the last."""
    cases: dict[str, list[str]] = {}
    for each in node_ids:
        cases.setdefault(each.partition("[")[0], []).append(each)
    return {case for found in cases.values() for case in (found[0], *found[-1:] * has_last)}


_SETTINGS: Final = "_hypothesis_internal_use_settings"


def fewer_examples(item: pytest.Item) -> None:
    """Lets a property test run with a fifth of its examples, ten at least.

    The random ones look for faults of the code. Those of another version show with few.
    """
    function = getattr(item, "function", None)
    found = getattr(function, _SETTINGS, None)
    if isinstance(found, settings):
        fewer = settings(found, max_examples=min(found.max_examples, max(10, found.max_examples // 5)))
        setattr(function, _SETTINGS, fewer)
        if hasattr(inside := getattr(function, "__wrapped__", None), _SETTINGS):  # of a process of its own
            setattr(inside, _SETTINGS, fewer)
