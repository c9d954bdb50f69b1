"""Test doubles of RocketMQ, for rmqio's tests and those of its users.

`InMemoryCluster` with `InMemoryClientFactory` replaces a cluster without sockets. `ManualClock` makes time pass.
"""

from rmqio.testing.clock import Clock, ManualClock
from rmqio.testing.cluster import InMemoryCluster
from rmqio.testing.memory import InMemoryClientFactory

__all__ = ["Clock", "InMemoryClientFactory", "InMemoryCluster", "ManualClock"]
