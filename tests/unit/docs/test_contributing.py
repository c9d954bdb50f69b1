"""The version is one, and what pyproject.toml and the Makefile have is described."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import rmqio

ROOT: Final = Path(__file__).parents[3]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_one() -> None:
    assert rmqio.__version__ == PROJECT["version"]
    assert (ROOT / "CHANGELOG.md").read_text().splitlines()[2].startswith(f"## {PROJECT['version']}")


def test_each_extra_and_each_target_is_described() -> None:
    install = (ROOT / "docs" / "install.md").read_text()
    internal = {"dev", "fuzz"}
    assert [
        extra for extra in PROJECT["optional-dependencies"] if extra not in internal and f"| `{extra}` |" not in install
    ] == []
    named = re.findall(r"`make ([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text())
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [name for name in named if name not in targets] == []
