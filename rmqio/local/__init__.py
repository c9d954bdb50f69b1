"""A real RocketMQ 5.5.0 name server and broker on this machine, for tests, demonstrations and benchmarks.

    with LocalRocketMQ() as rocketmq:
        rocketmq.create_topic("orders", queues=4)
        ...  # name server at rocketmq.name_server

On the command line `python -m rmqio.local`, in pytest the fixture `rocketmq`.
"""

from __future__ import annotations

from rmqio.local.broker import LocalRocketMQ
from rmqio.local.errors import LocalBrokerError

__all__ = ["LocalRocketMQ", "LocalBrokerError"]
