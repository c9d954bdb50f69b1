"""The picklable factory of producers over librocketmq; implements `interfaces.ClientFactory`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.interfaces import Producer, QueueClient
from rmqio.options import ClientOptions

_FIXED: Final = {
    "connect_timeout_ms": "the library always uses 3,000 ms",
    "heartbeat_ms": "the library always uses 30,000 ms (WriteOptions: broker_heartbeat_interval_ms)",
    "vip_channel": "the library has no such setting",
    "create_topics": "the library would choose other queues than the topic gets; create the topic first",
}
"""Options that are accepted only with their default value, each with the reason."""


@dataclass(frozen=True, slots=True)
class LibrocketmqClientFactory:
    """Creates producers over librocketmq in the process that uses them, and remoting clients, which read.

    Factories with equal options are equal. Raises `LocalError` for options that the library does not support. Whether
    the library is available is checked in `producer`, where it is needed.
    """

    options: ClientOptions

    def __post_init__(self) -> None:
        options, security = self.options, self.options.security
        defaults: dict[str, Any] = {field.name: field.default for field in fields(ClientOptions)}
        for name, why in _FIXED.items():
            if getattr(options, name) != defaults[name]:
                _refuse(f"{name}={getattr(options, name)!r}", why)
        if options.compress_over_bytes is not None and options.compression != "zlib":
            _refuse(f"compression={options.compression!r}", "the library compresses with zlib only")
        if security.tls is not None:
            _refuse("Security.tls", "its wheel was built without TLS")
        if security.address_map:
            _refuse("Security.address_map", "the library connects to the addresses of the route")
        if security.allowed_addresses:
            _refuse("Security.allowed_addresses", "the library connects to the addresses of the route")

    def queue_client(self) -> QueueClient:
        """Create a remoting client, because the library cannot search offsets. It connects on first use."""
        from rmqio.client.client import RemotingQueueClient

        return RemotingQueueClient(self.options)

    def producer(self, group: str) -> Producer:
        """Create a producer of a group; it connects on first use.

        Raises `LocalError` when the library is missing, does not fit, or cannot be used in this process.
        """
        from rmqio.librocketmq.producer import LibrocketmqProducer

        return LibrocketmqProducer(self.options, group)


def _refuse(what: str, why: str) -> None:
    raise LocalError(f"backend 'librocketmq' does not support {what}: {why}. Omit it, or use backend='remoting'")
