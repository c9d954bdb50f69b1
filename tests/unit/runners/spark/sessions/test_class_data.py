"""The file of Spark's classes: who makes it, when it is used, and when it is not."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.sessions import session
from rmqio.runners.spark.sessions.session import FLAGS, VARIABLE, ClassData

WRITTEN = b"\xf0\x0b\xab\xa2 and so on"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (VARIABLE, *session._USERS_OWN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path))
    monkeypatch.setattr(session, "_key", lambda _: "key")
    for name in ("key", "other"):
        was_first(tmp_path / "spark", name)
    return tmp_path / "spark"


def was_first(folder: Path, key: str) -> None:
    """A JVM has started before, which makes no file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"classes-{key}.first").touch()


def ended() -> int:
    """Returns the process id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def made_by(jvm: int, content: bytes) -> ClassData:
    """A second start whose JVM has this process id, and has written this."""
    first = ClassData({})
    assert first.is_made
    (option,) = [each for each in first.options if "ArchiveClassesAtExit" in each]
    first.started(jvm)
    Path(option.partition("=")[2]).write_bytes(content)
    return first


def uses(data: ClassData, folder: Path) -> bool:
    return f"-XX:SharedArchiveFile={folder / 'classes-key.jsa'}" in data.options


def test_the_second_start_makes_the_file_and_later_ones_use_it(folder: Path) -> None:
    """Making it takes seconds, and in a container, each start may be the first one."""
    (folder / "classes-key.first").unlink()
    first = ClassData({})
    assert first.options == FLAGS
    assert not first.is_made
    made_by(ended(), WRITTEN)
    for _ in range(2):
        later = ClassData({})
        assert uses(later, folder)
        assert not later.is_made


def test_nobody_else_makes_or_uses_it_while_the_jvm_writes(folder: Path) -> None:
    made_by(os.getpid(), WRITTEN)
    meanwhile = ClassData({})
    assert meanwhile.options == FLAGS
    assert not meanwhile.is_made


@pytest.mark.parametrize("maker", ["", "no number", "9" * 40, "-1", "PID 1"])
def test_a_maker_that_is_none_or_another_process_by_now_is_not_waited_for(maker: str, folder: Path) -> None:
    made_by(ended(), b"")
    (folder / "classes-key.maker").write_text(maker.replace("PID", str(os.getpid())))  # begun at another time
    assert ClassData({}).is_made


def test_a_cache_folder_may_have_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits its options as a shell does."""
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "my cache"))
    was_first(tmp_path / "my cache" / "spark", "key")
    options = shlex.split(" ".join(ClassData({}).options))
    assert f"-XX:ArchiveClassesAtExit={tmp_path / 'my cache' / 'spark' / 'classes-key.new'}" in options


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_what_a_killed_jvm_has_written_is_dropped_and_made_again(content: bytes, folder: Path) -> None:
    """The JVM writes the header last."""
    made_by(ended(), content)
    again = ClassData({})
    assert again.is_made
    assert not (folder / "classes-key.jsa").exists()


def test_a_file_that_was_cut_off_is_not_used(folder: Path) -> None:
    """A JVM would crash on it."""
    made_by(ended(), WRITTEN)
    assert uses(ClassData({}), folder)
    (folder / "classes-key.jsa").write_bytes(WRITTEN[:-1])
    assert not uses(ClassData({}), folder)


def test_after_a_jvm_that_did_not_start_nobody_uses_it(folder: Path) -> None:
    made_by(ended(), WRITTEN)
    broken = ClassData({})
    broken.drop()
    assert broken.options == ()
    assert ClassData({}).is_made, "it is made anew"


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({VARIABLE: "0"}, {}),
        ({"SPARK_SUBMIT_OPTS": "-XX:+UseG1GC"}, {}),
        ({"JAVA_TOOL_OPTIONS": "-Xshare:off"}, {}),
        ({}, {"spark.driver.extraJavaOptions": "-XX:+UseZGC"}),
    ],
)
def test_it_is_off_where_the_user_says_so_or_has_options_of_the_kind(
    environment: dict[str, str], settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    data = ClassData(settings)
    assert data.options == ()
    data.started(1)
    data.drop()


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "spark.driver.extraClassPath"])
def test_a_class_path_with_a_folder_of_files_cannot_be_archived(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java says so only when it ends, and then makes no file: each start would try again."""
    conf = tmp_path / "conf"
    conf.mkdir()
    settings = {variable: f"/some.jar{os.pathsep}{conf}"} if "." in variable else {}
    monkeypatch.setenv(variable, str(conf))
    data = ClassData(settings)
    assert data.is_made, "an empty folder does no harm"
    data.drop()
    (conf / "spark-defaults.conf").touch()
    assert ClassData(settings).options == FLAGS
    assert {each.suffix for each in (tmp_path / "spark").iterdir()} == {".first"}


def test_what_a_killed_jvm_of_another_java_has_written_is_dropped(folder: Path) -> None:
    for name in ("classes-other.new", "classes-other.maker"):
        (folder / name).write_text(f"{ended()}" if name.endswith("maker") else "")
    ClassData({}).drop()
    assert {each.suffix for each in folder.iterdir()} == {".first"}


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("no folder")
    data = ClassData({})
    assert data.options == FLAGS
    assert not data.is_made
    data.drop()


def test_without_java_it_is_spark_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> Any:
        raise OSError("no java")

    monkeypatch.setattr(session, "_key", none)
    assert ClassData({}).options == FLAGS


def test_the_file_is_of_one_java_and_one_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    keys = {session._key([]), session._key(["/more.jar"])}
    monkeypatch.setattr("pyspark.__version__", "0.0")
    keys.add(session._key([]))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    keys.add(session._key([]))
    assert len(keys) == 4
