"""The pipelines are programs: each one runs by the name of its file, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rmqio.pipelines

FOLDER = Path(rmqio.pipelines.__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("folder", [FOLDER, EXAMPLES], ids=["pipelines", "examples"])
def test_no_file_hides_a_module_of_python(folder: Path) -> None:
    """Python looks for modules in the folder of the program first: a copy.py there ends every program beside it."""
    assert {each.stem for each in folder.glob("*.py")} & sys.stdlib_module_names == set()


@pytest.mark.parametrize("name", ["province", "copy_job"])
def test_a_file_is_run_by_its_path(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {name}.py ")
