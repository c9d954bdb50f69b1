"""RMQIO_LOCAL_JAVA_OPTIONS: further options of the JVMs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqio.errors import LocalError
from rmqio.local.install import (
    JAVA_OPTIONS_VARIABLE,
    Programs,
    Settings,
    broker_process,
    name_server_process,
)
from rmqio.local.processes import Java, Watchdog
from tests.helpers.waiting import until

SETTINGS = Settings("b", {}, {}, 256, False, None, java_options=("-Dlast=1",))


def test_options_from_the_environment_are_given_to_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each is given as the shell would split it. Java's stand-in writes down its arguments."""
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/given-$$\n')
    java.chmod(0o755)
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Dfirst=1 '-Dname=a b'")
    monkeypatch.setenv("RMQIO_CACHE", str(tmp_path / "cache"))
    programs, watchdog = Programs(Java(java, 17, "PATH"), ()), Watchdog(tmp_path / "watched")
    try:
        for make in (name_server_process, broker_process):
            process = make(SETTINGS, programs, tmp_path / make.__name__, watchdog, {})
            process.start()
            until(lambda: process.pid() is None, "an end by itself", still_s=240)  # noqa: B023
    finally:
        watchdog.close()
    given = [path.read_text().splitlines() for path in tmp_path.glob("given-*")]
    assert len(given) == 2
    assert all({"-Dfirst=1", "-Dname=a b"} <= set(each) for each in given)


def test_options_that_no_shell_would_take_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(JAVA_OPTIONS_VARIABLE, "-Dname='a")
    watchdog = Watchdog(tmp_path / "watched")
    try:
        with pytest.raises(LocalError, match=r"RMQIO_LOCAL_JAVA_OPTIONS=.*No closing quotation"):
            name_server_process(SETTINGS, Programs(Java(Path("java"), 17, "PATH"), ()), tmp_path, watchdog, {})
    finally:
        watchdog.close()
