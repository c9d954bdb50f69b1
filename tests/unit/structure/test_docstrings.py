"""Docstrings say what a thing is or does: none begins with a bare What, Of or Where. Those of tests, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("rmqio", "runners", "pipelines", "schemas", "pyspark_rocketmq", "tests", "bench", "docs/tools")
_BARE: Final = re.compile(r'^\s*"""((?:What|Of|Where|Who|Whose|Whom|Which|That|Those)\b.*)', re.MULTILINE)


def bare(text: str) -> list[str]:
    return _BARE.findall(text)


def test_no_docstring_begins_with_a_bare_clause() -> None:
    files = [ROOT / "setup.py", *(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))]
    assert len(files) > 800
    assert [f"{file.relative_to(ROOT)}: {found}" for file in files for found in bare(file.read_text())] == []


def test_a_bare_clause_is_found() -> None:
    assert bare('def f():\n    """What a call needs.\n') == ["What a call needs."]
    assert bare('    """Whether it is there."""\n    """Offsets of a queue."""\n') == []
