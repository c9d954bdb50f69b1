"""The file of RocketMQ's classes: who makes it, when it is used, and when it is not. A shell script plays Java."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqio.local.install import VARIABLE, ClassData
from rmqio.local.processes import USERS_OWN, Java
from tests.helpers.servers.class_data import turned_off
from tests.helpers.waiting import until

# Writes a file of ten bytes, or fails, and keeps the list that it was given.
JAVA = """#!/bin/sh
for each in "$@"; do case "$each" in
  -XX:SharedArchiveFile=*) printf 0123456789 > "${each#*=}";;
  -XX:SharedClassListFile=*) cp "${each#*=}" "$0.list";;
esac; done
exit $(cat "$0.status")
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (VARIABLE, *USERS_OWN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "cache"))
    java = tmp_path / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    (tmp_path / "java.status").write_text("0")
    return tmp_path / "cache" / "local"


def data(folder: Path, major: int = 17, jars: tuple[str, ...] = ("a.jar",)) -> ClassData:
    return ClassData(Java(folder / "java", major, "JAVA_HOME"), [folder / each for each in jars])


def lister(folder: Path) -> ClassData:
    """The second broker's, which has listed some classes and is writing one more."""
    data(folder).options((), lists_to=folder / "listed")
    second = data(folder)
    assert second.options((), lists_to=folder / "listed") == [f"-XX:DumpLoadedClassList={folder}/listed"]
    (folder / "listed").write_text("java/lang/Object id: 0\nown/Class id: 1 super: 0 source: x\na/B id: 2\na/Unfinis")
    return second


def test_the_second_broker_makes_it_and_the_next_ones_use_it(tmp_path: Path, cache: Path) -> None:
    lister(tmp_path).make()
    until(lambda: not [*cache.glob("*.list"), *cache.glob("*.new")], "an end of making it")
    (file,) = cache.glob("*.jsa")
    assert file.name.endswith("-10.jsa")
    for lists_to in (None, tmp_path / "listed"):
        assert data(tmp_path).options((), lists_to=lists_to)[-1] == f"-XX:SharedArchiveFile={file}"
    assert (tmp_path / "java.list").read_text() == "java/lang/Object id: 0\na/B id: 2\n"


def test_only_one_broker_makes_it(tmp_path: Path, cache: Path) -> None:
    lister(tmp_path)
    assert data(tmp_path).options((), lists_to=tmp_path / "other") == []
    for began in cache.glob("*.second"):
        os.utime(began, (0, 0))
    assert data(tmp_path).options((), lists_to=tmp_path / "other") != [], "that one did not end in an hour"


def test_who_does_not_list_makes_none(tmp_path: Path, cache: Path) -> None:
    """Name servers, and brokers that nobody waits for."""
    for _ in range(3):
        own = data(tmp_path)
        assert own.options(()) == []
        own.make()
    assert not cache.exists()


def test_a_java_that_fails_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "java.status").write_text("1")
    lister(tmp_path).make()
    until(lambda: not [*cache.glob("*.list"), *cache.glob("*.new")], "an end of making it")
    assert not [*cache.glob("*.jsa")]


def test_a_damaged_file_or_one_of_other_jars_is_not_used(tmp_path: Path, cache: Path) -> None:
    """A JVM would crash with half of a file."""
    lister(tmp_path).make()
    until(lambda: bool([*cache.glob("*.jsa")]), "the file")
    assert data(tmp_path, jars=("a.jar", "b.jar")).options(()) == []
    (file,) = cache.glob("*.jsa")
    file.write_text("01234")
    assert data(tmp_path).options(()) == []


@pytest.mark.parametrize(("environment", "given", "major"), turned_off(VARIABLE))
def test_it_is_off(
    environment: dict[str, str], given: tuple[str, ...], major: int,
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        assert data(tmp_path, major).options(given, lists_to=tmp_path / "listed") == []
    assert not cache.exists()


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    for _ in range(2):
        assert data(tmp_path).options((), lists_to=tmp_path / "listed") == []
