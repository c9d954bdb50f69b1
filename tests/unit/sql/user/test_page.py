"""The page on functions in Python shows the module that its statements use."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[4] / "docs/sql"


def test_the_module_is_as_shown() -> None:
    page = (FOLDER / "python-functions.md").read_text()
    assert f"```python\n{(FOLDER / 'text_functions.py').read_text()}```" in page
