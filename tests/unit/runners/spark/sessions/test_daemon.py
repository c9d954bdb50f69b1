"""Spark's Python daemon, as Spark starts it: it has imported Beam, has one thread, and forks workers."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.waiting import at_most

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
if not Path("/proc/self/task").exists():
    pytest.skip("threads of another process are seen in /proc", allow_module_level=True)

_INT = struct.Struct(">i")


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqio.runners.spark.sessions.daemon"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Spark gives the number of a task's cores to OpenMP, and so to NumPy.
        env={**os.environ, "SPARK_REUSE_WORKER": "1", "OMP_NUM_THREADS": "1"},
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()  # with which Spark ends it
        process.wait(at_most(20))


def threads_of(pid: int) -> list[str]:
    """The names of its threads."""
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]


def libraries_of(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_it_has_no_threads_beside_its_own_before_it_forks(daemon: subprocess.Popen[bytes]) -> None:
    """A lock that another thread holds at a fork is held for ever in the child."""
    assert daemon.stdout is not None
    (port,) = _INT.unpack(daemon.stdout.read(_INT.size))  # it is ready, with all imports done
    assert "apache_beam" in libraries_of(daemon.pid), "imported in the daemon, not in each worker"
    assert len(threads_of(daemon.pid)) == 1, threads_of(daemon.pid)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port), timeout=at_most(20)) as connection:
            (worker,) = _INT.unpack(connection.recv(_INT.size, socket.MSG_WAITALL))
            assert worker != daemon.pid
            assert "apache_beam" in libraries_of(worker)
            assert len(threads_of(worker)) == 1, threads_of(worker)
    assert len(threads_of(daemon.pid)) == 1, "nor before it forks again"
