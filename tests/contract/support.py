"""A backend as a test sees it; reading whole queues."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqio.client.connection import Connection, ConnectionPool
from rmqio.interfaces import ClientFactory, FetchedBatch, Producer, QueueClient
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command
from tests.helpers import waiting

ALL = MessageFilter()


@dataclass
class Backend:
    """A backend as a test sees it."""

    name: str
    factory: ClientFactory
    create: Callable[[str, int], object]
    name_server: str = ""
    closers: list[Callable[[], object]] = field(default_factory=list)
    _pool: ConnectionPool | None = None

    def topic(self, queues: int = 4) -> str:
        """A new topic."""
        name = f"contract-{uuid.uuid4().hex[:12]}"
        self.create(name, queues)
        return name

    def client(self) -> QueueClient:
        client = self.factory.queue_client()
        self.closers.append(client.close)
        return client

    def producer(self, group: str = "contract-producers") -> Producer:
        producer = self.factory.producer(group)
        self.closers.append(producer.close)
        return producer

    def ask(self, command: Command, timeout_ms: int = 20_000) -> Command:
        """The broker's own answer to a request, with no client of ours in between."""
        return self.connect(self.broker_address()).request(command, timeout_ms)

    def ask_name_server(self, command: Command) -> Command:
        return self.connect(self.name_server).request(command, 5_000)

    def broker_address(self) -> str:
        (broker,) = requests.parse_cluster_info(self.ask_name_server(requests.get_cluster_info()))
        assert broker.master is not None
        return broker.master

    def connect(self, address: str) -> Connection:
        if self._pool is None:
            self._pool = ConnectionPool(ClientOptions(self.name_server))
            self.closers.append(self._pool.close)
        return self._pool.connection(address)


def fetch(
    client: QueueClient, queue: MessageQueue, offset: int = 0, *, until: int, **options: object
) -> list[FetchedBatch]:
    """Everything from `offset` up to the offset `until`."""
    message_filter = options.pop("message_filter", ALL)
    assert isinstance(message_filter, MessageFilter)
    assert not options
    reader = client.open_reader(queue, offset, message_filter=message_filter)
    got: list[FetchedBatch] = []

    def is_there() -> bool:
        if reader.position < until:
            client.wait([reader], 1_000)
            fetched = reader.poll()
            if fetched is not None:
                got.append(fetched)
        return reader.position >= until

    try:
        waiting.until(
            is_there,
            f"offset {until} of {queue}",
            progress=lambda: reader.position,
            details=lambda: f"{reader.position} only: {got!r:.2000}",
            pause_s=0,
        )
        return got
    finally:
        reader.close()


def read(client: QueueClient, queue: MessageQueue, offset: int = 0, *, until: int, **options: object) -> list[Record]:
    """The records from `offset` up to the offset `until`."""
    return [record for fetched in fetch(client, queue, offset, until=until, **options) for record in fetched.records]
