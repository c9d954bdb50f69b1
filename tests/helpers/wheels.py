"""The wheel of this source tree, and programs that find nothing of the tree by the environment of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCES: Final = (
    *("rmqio", "pyspark_rocketmq"),
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
)
_HIDDEN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NAMESRV_ADDR")
"""Variables that could make the source tree importable, or a broker known."""


def finished(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end. `variables` are added to what is left of the environment."""
    environment = {key: value for key, value in os.environ.items() if key not in _HIDDEN} | variables
    words = [str(part) for part in command]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def run(*command: object, cwd: Path, **variables: str) -> str:
    """Returns the standard output of a program, which has to succeed."""
    done = finished(*command, cwd=cwd, **variables)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def build_wheel(folder: Path, **variables: str) -> Path:
    """Builds it from a copy of what git would hold, so that nothing is left in the source tree or taken from it.

    The copy is `folder / "source"`. `variables` are those of setup.py.
    """
    source = folder / "source"
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *_SOURCES, cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "-w", folder / "dist", source, cwd=folder, **variables)
    (built,) = (folder / "dist").glob("rmqio-*.whl")
    return built
