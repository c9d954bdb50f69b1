"""The picklable maker of clients: implements `interfaces.ClientFactory`."""

from __future__ import annotations

from dataclasses import dataclass

from rmqio.interfaces import Producer, QueueClient
from rmqio.options import ClientOptions


@dataclass(frozen=True, slots=True)
class RemotingClientFactory:
    """Makes clients that speak the remoting protocol, in the process that uses them. Equal options, equal factories."""

    options: ClientOptions

    def queue_client(self) -> QueueClient:
        """A new client; nothing is connected before its first use."""
        from rmqio.client.client import RemotingQueueClient

        return RemotingQueueClient(self.options)

    def producer(self, group: str) -> Producer:
        """A new producer of a group; nothing is connected before its first use."""
        from rmqio.client.sending.producer import RemotingProducer

        return RemotingProducer(self.options, group)
