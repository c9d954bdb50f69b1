"""The picklable factory of clients; implements `interfaces.ClientFactory`."""

from __future__ import annotations

from dataclasses import dataclass

from rmqio.interfaces import Producer, QueueClient
from rmqio.options import ClientOptions


@dataclass(frozen=True, slots=True)
class RemotingClientFactory:
    """Creates remoting clients in the process that uses them. Factories with equal options are equal."""

    options: ClientOptions

    def queue_client(self) -> QueueClient:
        """Create a client; it connects on first use."""
        from rmqio.client.client import RemotingQueueClient

        return RemotingQueueClient(self.options)

    def producer(self, group: str) -> Producer:
        """Create a producer of a group; it connects on first use."""
        from rmqio.client.producer import RemotingProducer

        return RemotingProducer(self.options, group)
