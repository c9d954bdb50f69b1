"""The clock of a planner."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rmqio.testing import ManualClock
from rmqio.transforms.reading import planned


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    made = ManualClock()
    monkeypatch.setattr(planned, "time", SimpleNamespace(time=made.time, monotonic=made.monotonic))
    return made
