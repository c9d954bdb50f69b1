"""Each block of SQL in README and docs is valid, and each plan that a page shows is the one that EXPLAIN gives.

The blocks of a page are one script, in their order.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax.parser import parse

ROOT: Final = Path(__file__).parents[3]
_BLOCK: Final = re.compile(r"^```(sql|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES: Final = [
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if "```sql" in page.read_text()
]


def test_there_are_pages() -> None:
    assert ROOT / "docs/sql/index.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_valid_and_plans_are_as_shown(page: Path) -> None:
    script = Script()
    shown = ""
    for kind, text in _BLOCK.findall(page.read_text()):
        if kind == "sql" and page.name != "pyspark.md":  # Spark's own SQL
            before = len(script.explained)
            script.run(text, str(page))  # modules of functions lie beside it
            shown = explain(script.explained[before:])
        elif kind == "text" and shown:
            assert text.rstrip() == shown
            shown = ""
    assert not shown, "EXPLAIN without its plan"


def test_the_error_that_the_page_shows_is_the_one_there_is() -> None:
    blocks = _BLOCK.findall((ROOT / "docs/sql/index.md").read_text())
    job = next(text for kind, text in blocks if kind == "sql")
    shown = next(text for kind, text in blocks if kind == "text" and text.startswith("alarms.sql"))
    at = job.rfind("r.reading")
    with pytest.raises(SqlError) as caught:
        Script().run(job[:at] + "r.readin" + job[at + len("r.reading") :], "alarms.sql")
    assert str(caught.value) == shown.rstrip()


def test_comments_of_the_page_are_sql() -> None:
    assert parse("-- only a comment\n") == []
