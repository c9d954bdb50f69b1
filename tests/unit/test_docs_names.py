"""Files and tests that the documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PATHS = sorted(ROOT.glob("tests/**/*.py"))
# By their last folders, too: pages name a file as `batch/test_runner.py`.
FILES = {"/".join(path.parts[-count:]): path for path in PATHS for count in range(1, 8)}
NAMES = {name for path in PATHS for name in (path.stem, *re.findall(r"def (test_\w+)", path.read_text()))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    paths = set(re.findall(r"[`(](tests/[\w/]+\.py)", text))
    assert {path for path in paths if not (ROOT / path).is_file()} == set()
    assert {name for name in re.findall(r"`((?:\w+/)*test_\w+\.py)", text) if name not in FILES} == set()
    if page.name != "spark-runner.md":  # which names Beam's own tests; spark/test_capabilities.py looks at it
        assert {name for name in re.findall(r"`(test_\w+)[`\[]", text) if name not in NAMES} == set()


def test_every_case_of_every_runner_is_a_row_of_the_delivery_guarantees() -> None:
    page = (ROOT / "docs" / "delivery-guarantees.md").read_text()
    cases = re.findall(r"def (test_(?:source|sink)_\w+)", FILES["test_delivery.py"].read_text())
    assert len(cases) == 9
    assert {case for case in cases if f"`{case}" not in page} == set()
