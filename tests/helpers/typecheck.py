"""mypy, strict, over the packages as they are installed.

mypy does not find the folders that pyproject.toml maps into `rmqio` (runners, pipelines, schemas) through an editable
install, so the wheel's layout is laid out in a temporary folder and checked there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAPPED = {"runners": "rmqio/runners", "pipelines": "rmqio/pipelines", "schemas": "rmqio/schemas"}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        shutil.copytree(ROOT / "rmqio", base / "rmqio")
        for source, target in MAPPED.items():
            shutil.copytree(ROOT / source, base / target)
        command = [
            sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"),
            "--cache-dir", str(ROOT / ".mypy_cache"), "-p", "rmqio",
        ]  # fmt: skip
        return subprocess.run(command, cwd=base, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
