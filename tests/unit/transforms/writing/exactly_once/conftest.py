"""A cluster in memory, on which nothing is waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqio.sending import certain
from rmqio.testing import InMemoryCluster
from rmqio.transforms.writing import exactly_once
from rmqio.transforms.writing import sink_state as sinks
from tests.helpers.transforms.writing_once import Writer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory nothing is on its way, and the position is committed each time."""
    for module in (sinks, exactly_once):
        monkeypatch.setattr(module, "LANDING_S", 0.0)
    monkeypatch.setattr(sinks, "_COMMIT_EVERY_S", 0.0)
    monkeypatch.setattr(sinks, "_HELD_S", 0.0)
    monkeypatch.setattr(certain, "_PAUSE_S", 0.0)
    sinks._states.clear()


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 4)
        yield made


@pytest.fixture(params=["elements", "batches"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements are written one by one, and in lists."""
    monkeypatch.setattr(Writer, "in_batches", request.param == "batches")
