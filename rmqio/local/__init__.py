"""A real RocketMQ 5.5.0 name server and broker on this machine, for tests, demonstrations and benchmarks.

    with LocalRocketMQ() as rocketmq:
        rocketmq.create_topic("orders", queues=4)
        ...  # name server at rocketmq.name_server

On the command line `python -m rmqio.local`, in pytest the fixture `rocketmq` of `rmqio.local.pytest_plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.local.broker import LocalRocketMQ
    from rmqio.local.errors import LocalBrokerError

__all__ = ["LocalRocketMQ", "LocalBrokerError"]

# On first use (PEP 562): a test session that loads the pytest plugin imports this package.
__getattr__ = lazy_names(__name__, {"LocalBrokerError": "errors", "LocalRocketMQ": "broker"})
