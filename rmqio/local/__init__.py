"""A real RocketMQ 5.5.0 name server and broker on this machine, for tests, demonstrations and benchmarks.

    with LocalRocketMQ() as rocketmq:
        rocketmq.create_topic("orders", queues=4)
        ...  # name server at rocketmq.name_server

On the command line `python -m rmqio.local`, in pytest the fixture `rocketmq` of `rmqio.local.pytest_plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqio.local.broker import LocalRocketMQ
    from rmqio.local.errors import LocalBrokerError

__all__ = ["LocalRocketMQ", "LocalBrokerError"]


def __getattr__(name: str) -> object:
    # On first use (PEP 562): a test session that loads the pytest plugin imports this package.
    if name == "LocalRocketMQ":
        from rmqio.local.broker import LocalRocketMQ

        return LocalRocketMQ
    if name == "LocalBrokerError":
        from rmqio.local.errors import LocalBrokerError

        return LocalBrokerError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
