"""The pytest fixture `rocketmq`: one broker for the whole session, started for the first test that requests it.

A project that uses it has `pytest_plugins = ["rmqio.local.pytest_plugin"]` in its topmost `conftest.py`. The module
imports nothing from rmqio before a test needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rmqio.local import LocalRocketMQ


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[LocalRocketMQ]:
    """A started `LocalRocketMQ`, shared by the session: give every test its own topic, and do not kill the broker."""
    from rmqio.local import LocalRocketMQ

    with LocalRocketMQ() as broker:
        yield broker
