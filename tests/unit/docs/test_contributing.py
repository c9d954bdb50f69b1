"""The settings of a contributor's tools are what the Makefile and pyproject.toml say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

import rmqio

ROOT: Final = Path(__file__).parents[3]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(path: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="Beam brings it in all versions but its oldest")
    return yaml.safe_load((ROOT / path).read_text())


def recipe(target: str) -> list[str]:
    """Returns the commands of a target of the Makefile."""
    text = (ROOT / "Makefile").read_text().replace("$(PY)", "$(VENV)/bin/python").replace("$(VENV)", ".venv")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert found is not None
    return [line.strip().lstrip("@") for line in found[1].splitlines()]


def test_the_hooks_before_a_commit_are_those_of_make_lint() -> None:
    (repository,) = loaded(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"  # nothing is fetched, and the versions are those of .venv
    assert [hook["entry"] for hook in repository["hooks"]] == recipe("lint")


def test_hosted_ci_runs_the_same_script_on_all_versions_of_python() -> None:
    jobs = loaded(".github/workflows/ci.yml")["jobs"]
    versions = [re.search(r":: (3\.\d+)$", each) for each in PROJECT["classifiers"]]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [found[1] for found in versions if found]
    assert "bash .ci/run" in [step.get("run") for step in jobs["test"]["steps"]]
    assert "make docs" in [step.get("run") for step in jobs["docs"]["steps"]]


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_have_what_a_host_requires(name: str) -> None:
    form = loaded(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form.keys() >= {"name", "description", "body"}
    identifiers = [field["id"] for field in form["body"]]
    assert len(set(identifiers)) == len(identifiers)
    assert all(field["type"] in ("textarea", "dropdown") and field["attributes"]["label"] for field in form["body"])


def test_an_issue_asks_for_the_runners_that_there_are() -> None:
    pytest.importorskip("apache_beam")
    from rmqio.runners.capabilities import Mode

    fields = {field["id"]: field for field in loaded(".github/ISSUE_TEMPLATE/bug.yml")["body"]}
    offered = fields["runner"]["attributes"]["options"]
    assert {mode.value.partition(",")[0] for mode in Mode} <= set(offered)


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
