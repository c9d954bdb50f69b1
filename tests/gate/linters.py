"""ruff and mypy: `python -m tests.gate.linters`. All of them run, and the exit status says whether one complained."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

COMMANDS: Final = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("tests.helpers.typecheck",),
)


def main() -> int:
    # With "-m", the tool is the one of this environment: that of requirements/dev.txt.
    statuses = [subprocess.run([sys.executable, "-m", *command], check=False).returncode for command in COMMANDS]
    return int(any(statuses))  # that of a linter that was killed is negative


if __name__ == "__main__":
    sys.exit(main())
