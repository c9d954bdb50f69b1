"""The file of Spark's classes on a real JVM: the second program makes it, the next uses it, a broken one is no harm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.helpers.waiting import at_most, until

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at a process's files in Linux's /proc"),
]

PROGRAM = """
import pathlib, sys
import apache_beam as beam
from pyspark import SparkContext
from rmqio.runners import options

flags = ["--runner=SparkRunner", "--spark_conf", "spark.driver.memory=600m"]
with beam.Pipeline(options=options(flags)) as pipeline:
    _ = pipeline | beam.Create([1, 2]) | beam.Map(lambda number: number + 1)
jvm = SparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()
maps = pathlib.Path(f"/proc/{jvm}/maps").read_text()
print("MAPPED" if ".jsa" in "".join(line for line in maps.splitlines() if sys.argv[1] in line) else "NOT-MAPPED")
"""


def run(folder: Path, **more: str) -> tuple[str, str]:
    """Runs a pipeline with its caches in a folder. Returns whether its JVM has mapped the file, and its stderr."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    leave_out = ("SPARK", "PYSPARK", "RMQIO_SPARK_CLASS_DATA")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(leave_out)}
    done = subprocess.run(
        [sys.executable, program, folder],
        env=environment | {"RMQIO_CACHE": str(folder)} | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=at_most(200),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_the_third_program_uses_what_the_second_has_made_and_a_broken_file_is_left_out(tmp_path: Path) -> None:
    for _ in range(2):
        assert not [*(tmp_path / "spark").glob("*.maker")]
        found, complaints = run(tmp_path)
        assert found == "NOT-MAPPED"
        assert "jsa" not in complaints
    folder = tmp_path / "spark"

    def is_written() -> bool:
        return bool(list(folder.glob("*.new"))) and not any(jvm_writes(maker) for maker in folder.glob("*.maker"))

    what = "the file, which the second JVM writes when it ends"
    until(is_written, what, details=lambda: [*folder.iterdir()], still_s=120)
    found, complaints = run(tmp_path)
    assert found == "MAPPED"
    assert "jsa" not in complaints
    (file,) = (tmp_path / "spark").glob("*.jsa")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])  # a mapped file that is cut off crashes a JVM
    found, complaints = run(tmp_path)
    assert found == "NOT-MAPPED"
    assert "jsa" not in complaints


def jvm_writes(maker: Path) -> bool:
    try:
        return Path(f"/proc/{maker.read_text().split()[0]}").exists()
    except (OSError, IndexError):
        return False


def test_a_java_that_refuses_the_options_is_started_without_them(tmp_path: Path) -> None:
    home = os.environ.get("JAVA_HOME")
    real = os.path.join(home, "bin", "java") if home else shutil.which("java")
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    log = tmp_path / "refused"
    java.write_text(f'#!/bin/sh\ncase "$*" in *UseSerialGC*) echo no >> {log}; exit 1;; esac\nexec {real} "$@"\n')
    java.chmod(0o755)
    mapped, _ = run(tmp_path, JAVA_HOME=str(tmp_path / "home"))
    assert mapped == "NOT-MAPPED"
    assert log.read_text() == "no\n", "once"
