"""The job server for Flink without Java: which one is run, and with which command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.local.artefacts import Lock, dump_lock, read_lock
from rmqio.local.errors import LocalBrokerError, WrongContentError
from rmqio.local.processes import Java
from rmqio.runners.flink import JobServer, JobServerError
from rmqio.runners.flink.jobserver import JAR_VARIABLE, JAVA_OPTIONS_VARIABLE, LOCK, Server, Wanted, find_jars
from rmqio.runners.flink.jobserver_command import MAIN_CLASS, Settings, flink_config, java_options, write_command

JAVA = Java(Path("/opt/java/bin/java"), 17, "PATH")
ROOT = Path(__file__).resolve().parents[4]

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


def test_beams_published_one_is_the_last_resort_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
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


def test_importing_it_does_not_import_beam() -> None:
    program = "import sys, rmqio.runners, rmqio.runners.flink; print('apache_beam' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_options_of_the_jvm_that_are_not_closed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Dname='a b")
    with pytest.raises(LocalError, match=r"RMQIO_FLINK_JAVA_OPTIONS=.*No closing quotation"):
        Server(Wanted())
