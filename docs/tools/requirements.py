"""Prints what the extra `docs` of pyproject.toml requires, for pip: the site needs neither rmqio nor Beam installed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"


def requirements() -> list[str]:
    """Returns them."""
    found: list[str] = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["docs"]
    return found


if __name__ == "__main__":
    print("\n".join(requirements()))
