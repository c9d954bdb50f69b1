"""The file of the job server's classes: when it is used, and when it is not. The runner for Spark shares the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqio.local.processes import USERS_OWN, Java
from rmqio.runners.flink.jobserver import VARIABLE, ClassData
from tests.helpers.servers.class_data import turned_off


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (VARIABLE, *USERS_OWN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "java").touch()
    (tmp_path / "a.jar").touch()
    return tmp_path / "cache" / "flink"


def data(folder: Path, *given: str, major: int = 17, makes: bool = True) -> ClassData:
    return ClassData(Java(folder / "java", major, "JAVA_HOME"), [folder / "a.jar"], given, makes=makes)


def test_the_second_jvm_makes_it_and_options_of_another_kind_are_welcome(tmp_path: Path, cache: Path) -> None:
    """In a container, each start may be the first one, and one that makes the file takes longer."""
    assert data(tmp_path).options == ()
    made = data(tmp_path, "-XX:+UseZGC")
    assert made.is_made
    assert any(each.startswith(f"-XX:ArchiveClassesAtExit={cache}/classes-") for each in made.options)
    assert data(tmp_path).options == (), "another one makes it at the moment"


@pytest.mark.parametrize(("environment", "given", "major"), turned_off(VARIABLE))
def test_it_is_off(
    environment: dict[str, str], given: tuple[str, ...], major: int,
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert data(tmp_path, *given, major=major).options == ()
    assert not cache.exists()


def test_a_job_server_for_a_cluster_only_uses_it(tmp_path: Path, cache: Path) -> None:
    """It loads less than half of the classes that an embedded Flink needs."""
    assert data(tmp_path, makes=False).options == ()
    assert not cache.exists()


def test_it_is_of_one_java_and_of_these_jars(tmp_path: Path, cache: Path) -> None:
    for changed in ("", "a.jar", "java"):
        os.utime(tmp_path / changed, (1, 1))
        for _ in range(2):
            data(tmp_path)
    assert len([*cache.glob("*.maker")]) == 3


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "a.jar" / "below"))
    for _ in range(2):
        assert not data(tmp_path).is_made
