"""What holds for all tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from rmqio.local import LocalRocketMQ
    from tests.helpers.guarded import Guarded
    from tests.helpers.ledger import Lab

# A busy machine must not fail a property: no deadline per example, and slow generation is no failure.
settings.register_profile("rmqio", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rmqio")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test whose name holds an address has another one in each process, and `make test` runs in two."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: give its parameters ids that do not change")


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker with access control and TLS, one for the run."""
    from tests.helpers.guarded import guarded_broker

    with guarded_broker(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@pytest.fixture(scope="module")
def lab(rocketmq: LocalRocketMQ) -> Iterator[Lab]:
    """Topics and groups of their own on the broker of the run."""
    from tests.helpers.ledger import Lab  # imports Beam, which most tests of units do without

    with contextlib.closing(Lab(rocketmq)) as lab:
        yield lab
