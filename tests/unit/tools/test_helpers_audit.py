"""The audit reads pip-audit's reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import audit
from tests.helpers.waiting import at_most

ROOT = Path(__file__).parents[3]

CLEAN: dict[str, Any] = {"name": "lz4", "version": "4.4", "vulns": []}
BAD: dict[str, Any] = {
    "name": "requests",
    "version": "2.19.0",
    "vulns": [{"id": "PYSEC-2018-28", "aliases": ["CVE-2018-18074"], "fix_versions": ["2.20.0"]}],
}
UNKNOWN: dict[str, Any] = {"name": "own", "skip_reason": "Dependency not found on PyPI: own (1.0)"}


def test_each_vulnerability_is_a_line() -> None:
    report = {"dependencies": [CLEAN, BAD, UNKNOWN]}
    assert audit.findings(report, {}) == ["requests 2.19.0: CVE-2018-18074/PYSEC-2018-28, fixed in 2.20.0"]
    assert audit.findings(report, {"CVE-2018-18074": "not reachable"}) == []


def test_a_database_that_knows_nothing_is_no_clean_bill() -> None:
    with pytest.raises(audit.NoAnswer, match=r"2 of 3 packages, e\.g\. Dependency not found"):
        audit.findings({"dependencies": [UNKNOWN, UNKNOWN, CLEAN]})


@pytest.mark.parametrize(
    ("packages", "status"),
    [([CLEAN], 0), ([CLEAN, BAD], 1), ([UNKNOWN], 1)],
)
def test_the_exit_status(
    packages: list[Any],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "audit", lambda: {"dependencies": packages})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # it may not be there: audit() is not called
    assert audit.main() == status
    assert capsys.readouterr().out


def test_without_pip_audit_it_fails() -> None:
    """In a Python that sees no installed packages."""
    program = [sys.executable, "-S", "-m", "tests.helpers.audit"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=at_most(60), check=False)
    assert done.returncode == 1, done.stderr
    assert "pip-audit is not installed, so nothing was checked. Install it: pip install" in done.stdout
