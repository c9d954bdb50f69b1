"""`differences.toml`: each difference from Flink has a reason that can be looked up, and they become no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.helpers.oracles.differences import CALLS, QUERIES, Entry

ROOT: Final = Path(__file__).parents[3]
MOST: Final = 64
"""The entries that there are. It may only fall."""


def test_they_become_no_more() -> None:
    assert len(CALLS) + len(QUERIES) == MOST


def test_none_is_about_the_values_of_all_calls() -> None:
    wide = [each for each in (*CALLS, *QUERIES) if re.fullmatch(each.differs, "value") and each.form.startswith(".*")]
    assert [each for each in wide if not each.says] == []


@pytest.mark.parametrize("entry", [*CALLS, *QUERIES], ids=lambda entry: f"{entry.differs}: {entry.form} {entry.says}")
def test_the_reason_can_be_looked_up(entry: Entry) -> None:
    if entry.reason.startswith("docs/"):
        page, _, anchor = entry.reason.partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings]
    else:
        assert re.match(r"FLINK-\d+$|outside the model: \w", entry.reason)
