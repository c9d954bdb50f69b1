"""One command beside another: results, output, and the end of both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.beside import main
from tests.helpers.imports import ROOT


@pytest.mark.parametrize(("quiet", "command", "status"), [(0, 0, 0), (3, 0, 3), (0, 4, 4)])
def test_it_fails_if_one_of_them_fails(
    quiet: int, command: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, said = tmp_path / "made" / "log", tmp_path / "said"
    loud = f"while [ ! -e {said} ]; do sleep 0.05; done; exit {command}"
    assert main(log, f"echo priority $(nice); touch {said}; exit {quiet}", loud) == status
    shown = capsys.readouterr().out
    assert shown == log.read_text() == "priority 19\n" or (command and not shown), "it may just not have ended"


def test_its_session_has_the_lowest_priority_too(tmp_path: Path) -> None:
    """Without this, it takes half of the processor from programs that tests start in sessions of their own."""
    group = Path("/proc/self/autogroup")
    if not group.exists() or "autogroup" not in group.read_text():
        pytest.skip("the processor is not shared by sessions")
    assert main(tmp_path / "log", f"cat {group}", "true") == 0
    assert (tmp_path / "log").read_text().endswith(" nice 19\n")


def test_the_other_one_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path / "log", "sleep 0.3; echo at last", "true") == 0
    assert capsys.readouterr().out == "at last\n"


def has_ended(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # nobody has asked for its exit status yet
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in Linux's /proc")
def test_a_failure_ends_what_the_other_one_has_started(tmp_path: Path) -> None:
    """Also a program that a shell below it waits for."""
    pid = tmp_path / "pid"
    quiet = f"(sleep 600 & echo $! > {pid}.part; mv {pid}.part {pid}; wait); true"
    assert main(tmp_path / "log", quiet, f"while [ ! -e {pid} ]; do sleep 0.05; done; exit 5") == 5
    assert has_ended(int(pid.read_text()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in Linux's /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_both(number: signal.Signals, status: int, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    quiet = f"echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 600; true"
    command = [sys.executable, "-m", "tests.helpers.beside", str(tmp_path / "log"), quiet, "sleep 600; true"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not pid.exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, number)  # as a terminal does
        assert process.wait(20) == status
    assert has_ended(int(pid.read_text()))
