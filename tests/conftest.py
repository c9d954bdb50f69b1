"""What holds for all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: no deadline per example, and slow generation is no failure.
settings.register_profile("rmqio", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rmqio")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test whose name holds an address has another one in each process, and `make test` runs in two."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: give its parameters ids that do not change")
