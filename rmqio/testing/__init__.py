"""Test doubles of RocketMQ, for rmqio's tests and those of its users.

`InMemoryCluster` with `InMemoryClientFactory` replaces a cluster without sockets. `FakeBroker` speaks the remoting
protocol on loopback ports and can be told to misbehave (`faults`). `ScriptedTransport` plays bytes to one connection.
`ManualClock` makes time pass.
"""

from rmqio.testing import faults
from rmqio.testing._protocol import BrokerSettings
from rmqio.testing.broker import NAME_SERVER, FakeBroker
from rmqio.testing.clock import Clock, ManualClock
from rmqio.testing.cluster import InMemoryCluster
from rmqio.testing.memory import InMemoryClientFactory
from rmqio.testing.transport import ScriptedNetwork, ScriptedTransport

__all__ = [
    "NAME_SERVER",
    "BrokerSettings",
    "Clock",
    "FakeBroker",
    "InMemoryClientFactory",
    "InMemoryCluster",
    "ManualClock",
    "ScriptedNetwork",
    "ScriptedTransport",
    "faults",
]
