"""Reports known vulnerabilities of the installed packages, with pip-audit: `python -m tests.helpers.audit`.

It fails, too, if the database does not answer, and without pip-audit: nothing was checked.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from tests.helpers.waiting import at_most

ACCEPTED: Final[Mapping[str, str]] = {}
"""The accepted vulnerabilities: from the id to the reason why it is harmless here."""
_TIMEOUT_S: Final = 300


class NoAnswer(Exception):
    """Raised if the database did not answer."""


def findings(report: Mapping[str, Any], accepted: Mapping[str, str] = ACCEPTED) -> list[str]:
    """Returns a line for each vulnerability in pip-audit's report. Raises `NoAnswer` if few packages were looked up."""
    packages = report["dependencies"]
    looked_up = [package for package in packages if "vulns" in package]
    if len(looked_up) < len(packages) / 2:
        reasons = {package.get("skip_reason", "") for package in packages} - {""}
        raise NoAnswer(f"{len(packages) - len(looked_up)} of {len(packages)} packages, e.g. {min(reasons, default='')}")
    found = []
    for package in looked_up:
        for each in package["vulns"]:
            names = {each["id"], *each.get("aliases", ())}
            if not names & set(accepted):
                fixed = ", ".join(each.get("fix_versions", ())) or "no version yet"
                found.append(f"{package['name']} {package['version']}: {'/'.join(sorted(names))}, fixed in {fixed}")
    return found


def audit() -> dict[str, Any]:
    """Returns the report of pip-audit. Raises `NoAnswer`."""
    command = [sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner=off", "-f", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(_TIMEOUT_S), check=False)
        return dict(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no answer within {_TIMEOUT_S} s") from None
    except ValueError:
        raise NoAnswer((done.stderr.strip().splitlines() or ["no output"])[-1]) from None


def main() -> int:
    """Runs the audit and returns the exit status."""
    if importlib.util.find_spec("pip_audit") is None:
        print("audit: pip-audit is not installed, so nothing was checked. Install it: pip install -e '.[dev]'")
        return 1
    try:
        report = audit()
        found = findings(report)
    except NoAnswer as reason:
        print(f"audit: the vulnerability database did not answer, so nothing was checked ({reason})")
        return 1
    skipped = sum("vulns" not in package for package in report["dependencies"])
    some = f"; {skipped} others were not found in the database" if skipped else ""
    print(
        "\n".join(found) or f"audit: no known vulnerabilities in {len(report['dependencies']) - skipped} packages{some}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
