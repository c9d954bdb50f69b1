"""Runs mypy, strict, over the packages as they are installed, and over tests and benchmarks.

mypy does not find the folders that pyproject.toml maps into `rmqio` (runners, pipelines, schemas) through an editable
install. This module therefore copies the wheel's layout to a temporary folder, with `tests` and `bench` beside it, and
checks it there. What mypy remembers of files goes by their contents and is in the user's cache folder: a fresh clone
takes a tenth of the time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("rmqio", "pyspark_rocketmq", "tests", "bench", "docs", "examples")
MAPPED = {"pipelines": "rmqio/pipelines", "schemas": "rmqio/schemas"}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for source, target in {**{name: name for name in PACKAGES}, **MAPPED}.items():
            shutil.copytree(ROOT / source, base / target, ignore=shutil.ignore_patterns("__pycache__", "out", "*.so"))
        cache = Path(platformdirs.user_cache_dir("rmqio")) / "mypy"
        command = [
            sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"),
            "--cache-dir", str(cache), *(f"--package={name}" for name in PACKAGES),
        ]  # fmt: skip
        return subprocess.run(command, cwd=base, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
