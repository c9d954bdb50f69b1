"""The CPU time and memory of a tree of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("psutil", reason="benchmarks need the extra 'dev'")

from bench.common.processes import cpu_s, resident_mb, tree

# A process whose child works for 0.3 s, and then waits.
_PROGRAM = """
import subprocess, sys
work = "import time; end = time.process_time() + .3\\nwhile time.process_time() < end: pass"
ended = subprocess.run([sys.executable, "-c", work])
left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
print(left.pid, flush=True)
input()
left.kill()
left.wait()
"""


@pytest.fixture
def parent() -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.pid, int(process.stdout.readline())
    process.communicate("\n")


def test_a_tree_has_children_in_other_sessions_and_counts_those_that_ended(parent: tuple[int, int]) -> None:
    pid, child = parent
    assert [each.pid for each in tree(pid)] == [pid, child]
    assert [each.pid for each in tree(pid, without=[child])] == [pid]
    assert cpu_s(pid, without=[child]) >= 0.3, "the child that has ended"
    assert resident_mb(pid) > resident_mb(child) > 1
    assert pid in {each.pid for each in tree(os.getpid())}


def test_a_process_that_has_ended_uses_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert (cpu_s(process.pid), resident_mb(process.pid)) == (0, 0)
