"""The file of Flink's classes on a real JVM: the second program makes it, the next uses it, a broken one is no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqio.runners.class_data import cache_dir
from tests.helpers.waiting import at_most, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at a process's files in Linux's /proc"),
]

PROGRAM = """
import pathlib
import apache_beam as beam
from rmqio.runners import options
from rmqio.runners.flink.jobserver import SERVERS

with beam.Pipeline(options=options(["--runner=FlinkRunner"])) as pipeline:
    _ = pipeline | beam.Create([1, 2]) | beam.Map(lambda number: number + 1)
(server,) = SERVERS.idle
maps = pathlib.Path(f"/proc/{server.jobs.pid}/maps").read_text()
print("MAPPED" if "/flink/classes-" in maps else "NOT-MAPPED")
"""


def run(cache: Path) -> tuple[str, str]:
    """Runs a pipeline. Returns whether its JVM has mapped the file, and stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RMQIO_FLINK")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | {"RMQIO_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=at_most(300),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_the_third_program_uses_what_the_second_has_made_and_a_broken_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "maven").symlink_to(cache_dir() / "maven")  # 200 MB of jars
    folder = tmp_path / "flink"
    for _ in range(2):
        assert not [*folder.glob("*.maker")]
        found, complaints = run(tmp_path)
        assert found == "NOT-MAPPED"
        assert "jsa" not in complaints
    (maker,) = folder.glob("*.maker")
    process = Path(f"/proc/{maker.read_text().split()[0]}")
    until(lambda: not process.exists(), "the end of the second JVM, which then writes the file", still_s=240)
    found, complaints = run(tmp_path)
    assert found == "MAPPED"
    assert "jsa" not in complaints
    (file,) = folder.glob("*.jsa")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])  # a mapped file that is cut off crashes a JVM
    found, complaints = run(tmp_path)
    assert found == "NOT-MAPPED"
    assert "jsa" not in complaints
