"""A folder with the files of a commit."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.imports import ROOT


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """Yields the folder, in which nothing stays."""
    git = ("git", "-C", str(ROOT), "worktree")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([*git, "prune"], check=True)
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)
