"""The JVMs of these tests are no Flink: they must not write Flink's classes to the user's cache folder."""

from __future__ import annotations

import pytest

from rmqio.runners.flink.jobserver import VARIABLE


@pytest.fixture(autouse=True)
def no_class_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
