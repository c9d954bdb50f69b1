"""The part of the Flink runner that needs no Flink."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from apache_beam.runners.portability import stager

from rmqio.runners import options
from rmqio.runners.flink.runner import FlinkRunner


@pytest.mark.parametrize(
    ("flags", "is_listed"),
    [
        ((), False),
        (("--flink_master=host:8081", "--environment_type=LOOPBACK"), False),
        (("--environment_type=EXTERNAL", "--environment_config=host:50000"), True),
        (("--flink_master=host:8081", "--environment_type=EXTERNAL", "--environment_config=host:50000"), True),
    ],
    ids=["embedded", "cluster, LOOPBACK", "embedded, EXTERNAL", "cluster, EXTERNAL"],
)
def test_packages_are_listed_for_workers_elsewhere(
    flags: tuple[str, ...], is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam asks pip for them, which takes a second, and gives the list to the workers as a file."""
    asked: list[Any] = []

    def output(command: Any) -> bytes:
        asked.append(command)
        return b"rmqio==1"

    monkeypatch.setattr(stager.subprocess, "check_output", output)
    given = options(["--runner=FlinkRunner", *flags])
    made = FlinkRunner().default_environment(given)
    assert bool(made.artifacts()) == is_listed
    assert asked == ([[sys.executable, "-m", "pip", "freeze"]] if is_listed else [])
    assert "disable_logging" not in str(given.get_all_options())
