"""The code and the documents do not grow unnoticed: `measures.toml` keeps how large they may be, and why."""

from __future__ import annotations

import functools
import re

import pytest

from tests.unit.structure.measures import MEASURES, complaint, counts, kept, sources


@functools.cache
def _counts() -> dict[str, int]:
    return counts(sources())


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_is_at_most_what_is_kept(name: str) -> None:
    assert (text := complaint(name, _counts()[name], kept()[name]["most"])) is None, text


def test_what_is_kept_has_a_figure_in_steps_and_perhaps_a_reason() -> None:
    assert [*kept()] == [*MEASURES]
    for name, figure in kept().items():
        assert figure["most"] % MEASURES[name].step == 0, name
        assert set(figure) <= {"most", "why"}, name
        assert figure.get("why", "a reason").strip(), name


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (1001, "1,001, and at most 1,000 are allowed.*most = 1100.*why ="),
        (1000, None),
        (801, None),
        (800, "only 800, and 1,000 are allowed.*most = 800.*remove its"),
    ],
)
def test_a_figure_follows_its_count_in_steps(count: int, says: str | None) -> None:
    text = complaint("lines of sql", count, 1000)
    assert re.search(says, text) if says and text else text is says


def test_counts() -> None:
    files = {
        "README.md": "four words are here",
        "docs/a/page.md": "two words",
        "tests/README.md": "is no document",
        "tests/unit/test_a.py": "import a\n" * 3,
        "pipelines/copy.py": "from rmqio.sql.plan import Plan\n" * 5,
        "rmqio/__init__.py": "",
        "rmqio/_fast.c": "\n" * 7,
        "rmqio/sql/__init__.py": "from rmqio.sql.plan import Plan\n",
        "rmqio/sql/plan.py": "from rmqio.sql import nodes\n\n\nclass Plan: ...\n",
        "rmqio/sql/nodes.py": "\n" * 601,
        "rmqio/sql/a/b/deep.py": "import rmqio.sql.nodes\n",
        "rmqio/runners/spark/a.py": "def f():\n    from . import b\n",
        "rmqio/runners/spark/b.py": "",
        "rmqio/runners/a/b/allowed.py": "",
        "rmqio/runners/a/b/c/deep.py": "",
    }
    assert counts({path: text.encode() for path, text in files.items()}) == {
        "modules": 9,
        "lines of product": 5 + 7 + 1 + 4 + 601 + 1 + 2,
        "lines of sql": 1 + 4 + 601 + 1,
        "lines of tests": 3,
        "words of documents": 6,
        "modules too deep": 2,
        "modules with one importer, in its folder": 1,
        "modules under 60 lines": 6,
        "modules over 600 lines": 1,
        "lines of the largest module": 601,
    }
