"""PySpark's processes print all but that Spark has gone. Run as PySpark runs them, by module name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the format needs the extra 'spark'")

DAEMON = """
import traceback
from rmqio.pyspark.chatter import quiet
quiet()
for error in (BrokenPipeError("gone"), ValueError("told")):
    try:
        raise error
    except Exception:
        traceback.print_exc()
"""
PLANNER = """
import sys
from rmqio.pyspark.chatter import quiet
quiet()
raise {error}
"""


def stderr_of(module: str, text: str, folder: Path) -> str:
    """Returns what a program with that text prints that runs under the name of a module of PySpark's."""
    program = f"""
import importlib.machinery, sys
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec({module!r}, None)
{text}
"""
    path = folder / "program.py"
    path.write_text(program)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False).stderr


def test_a_worker_of_the_daemon_prints_all_but_that_spark_has_gone(tmp_path: Path) -> None:
    found = stderr_of("pyspark.daemon", DAEMON, tmp_path)
    assert "ValueError: told" in found
    assert "BrokenPipeError" not in found


@pytest.mark.parametrize(("error", "is_told"), [("BrokenPipeError('gone')", False), ("ValueError('no')", True)])
def test_the_planning_process_too(error: str, is_told: bool, tmp_path: Path) -> None:
    name = "pyspark.sql.streaming.python_streaming_source_runner"
    assert ("Traceback" in stderr_of(name, PLANNER.format(error=error), tmp_path)) == is_told


def test_other_programs_print_what_they_print(tmp_path: Path) -> None:
    assert "BrokenPipeError" in stderr_of("a.program", DAEMON, tmp_path)
