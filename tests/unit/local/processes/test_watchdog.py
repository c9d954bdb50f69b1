"""Processes that we start end when we end. They are `sleep` here; the broker's own tests do it with Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmqio.local.processes import Watchdog
from tests.helpers.waiting import until

SLEEP = ["sleep", "600"]
PARENT = """
import os, sys, time
from pathlib import Path
from rmqio.local.processes import Watchdog
folder = Path(sys.argv[1])
watchdog = Watchdog(folder)
process = watchdog.spawn(["sleep", "600"], cwd=Path("/"), output=folder / "output")
forked = os.fork() if len(sys.argv) > 2 else 0
if len(sys.argv) > 2 and forked == 0:
    time.sleep(600)  # a forked child that lives on must not keep the watchdog waiting
print(process.pid, forked, flush=True)
time.sleep(600)
"""


def is_gone(pid: int) -> bool:
    """Gone, or a zombie that the machine's init has not reaped."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return not state or state.startswith("Z")


def test_a_spawned_process_runs_the_command_with_its_output_in_the_file(tmp_path: Path) -> None:
    watchdog = Watchdog()
    command = [
        sys.executable,
        "-c",
        "import os, sys; print(sys.stdin.read() + os.getcwd(), os.getsid(0) == os.getpid())",
    ]
    process = watchdog.spawn(command, cwd=tmp_path, output=tmp_path / "output")
    assert process.wait() == 0
    watchdog.forget(process.pid)
    assert (tmp_path / "output").read_text() == f"{tmp_path} True\n"
    watchdog.close()


def test_closing_kills_what_it_knows_and_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    watchdog = Watchdog(folder)
    known = [watchdog.spawn(SLEEP, cwd=tmp_path, output=folder / "output") for _ in range(2)]
    forgotten = watchdog.spawn(SLEEP, cwd=tmp_path, output=folder / "output")
    # Registration is the first thing that the process does, but it does it: wait until it is a sleep.
    for process in (*known, forgotten):
        until(lambda pid=process.pid: _command(pid).startswith("sleep"), "a process that is a sleep")  # type: ignore[misc]
    watchdog.forget(forgotten.pid)
    # The killed ones are our children: until they are reaped the watchdog takes them for alive.
    reapers = [threading.Thread(target=process.wait) for process in known]
    for reaper in reapers:
        reaper.start()
    watchdog.close()
    watchdog.close()
    for reaper in reapers:
        reaper.join()
    assert [process.returncode for process in known] == [-signal.SIGKILL] * 2
    assert not folder.exists()
    assert forgotten.poll() is None
    forgotten.kill()
    forgotten.wait()


@pytest.mark.parametrize("extra", [[], ["fork"]])
def test_a_killed_parent_takes_its_processes_and_its_folder_with_it(tmp_path: Path, extra: list[str]) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", PARENT, folder, *extra], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, forked = map(int, parent.stdout.readline().split())
        assert not is_gone(child)
        parent.kill()
        until(lambda: is_gone(child), "the end of its process")
        until(lambda: not folder.exists(), "the end of its folder")
        if forked:
            assert not is_gone(forked)
            os.kill(forked, signal.SIGKILL)


def _command(pid: int) -> str:
    return subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True).stdout
