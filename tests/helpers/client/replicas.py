"""A master and its replica, without sockets and with a manual clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rmqio.client.client import RemotingQueueClient
from rmqio.errors import RmqioError, TransportError
from rmqio.interfaces import OffsetQuery, QueueReader
from rmqio.model import MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport
from tests.helpers.wire.stored_bytes import Stored

QUEUE = MessageQueue("t", "a", 0)
NAME_SERVER, MASTER, REPLICA = "ns:9876", "master:1", "replica:1"


class Pair:
    """A name server, a master, and a replica. The replica has the first `copied` of `size` messages."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.size = self.copied = 1_000
        self.master_suggests, self.replica_suggests = 1, 0
        self.has_master = True
        self.refuses: dict[str, Command] = {}
        self.down: set[str] = set()
        self.asked: Counter[tuple[str, int]] = Counter()
        self.pulls: list[tuple[str, int, int]] = []
        """The address, offset and flags of each pull."""
        self.knows_topic = True
        self.committed: str | None = "5"
        addresses = (NAME_SERVER, MASTER, REPLICA)
        network = ScriptedNetwork({address: lambda a=address: self.transport(a) for address in addresses})  # type: ignore[misc]
        environment = environment_on(self.clock, network)
        self.client = RemotingQueueClient(ClientOptions(NAME_SERVER, **{"pull_depth": 4} | options), environment)

    def transport(self, address: str) -> ScriptedTransport:
        failure = TransportError("refused") if address in self.down else None
        return ScriptedTransport(
            responder=lambda request: self.answer(address, request), clock=self.clock, connect_failure=failure
        )

    def answer(self, address: str, request: Command) -> Sequence[Command]:
        self.asked[address, request.code] += 1
        if address == NAME_SERVER:
            addresses = {"0": MASTER, "1": REPLICA} if self.has_master else {"1": REPLICA}
            queues = [{"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]
            brokers = [{"brokerName": "a", "brokerAddrs": addresses}]
            return [Command(0, body=json.dumps({"queueDatas": queues, "brokerDatas": brokers}).encode())]
        size = self.size if address == MASTER else self.copied
        if request.code == RequestCode.PULL_MESSAGE:
            return self.pull(address, size, request)
        if request.code == RequestCode.GET_TOPIC_CONFIG:
            return [Command(0 if self.knows_topic else 17)]
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET and address == REPLICA:
            return [Command(22) if self.committed is None else Command(0, {"offset": self.committed})]
        minimum = request.code == RequestCode.GET_MIN_OFFSET
        return [Command(0, {"offset": "0" if minimum else str(size)})]

    def pull(self, address: str, size: int, request: Command) -> Sequence[Command]:
        offset, flags = int(request.ext["queueOffset"]), int(request.ext["sysFlag"])
        self.pulls.append((address, offset, flags))
        if address in self.refuses:
            return [Command(self.refuses[address].code, dict(self.refuses[address].ext))]
        end = min(offset + 32, size)
        code, next_offset = (0, end) if offset < size else (19, offset) if offset == size else (21, size)
        if code == 19 and flags & 2:
            return []  # the broker holds the request
        ext = {
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": str(size),
            "suggestWhichBrokerId": str(self.master_suggests if address == MASTER else self.replica_suggests),
        }
        stored = [Stored(topic=b"t", queue_id=0, queue_offset=n).encode() for n in range(offset, end)]
        return [Command(code, ext, b"".join(stored))]

    def look(self) -> list[int | RmqioError | None]:
        queries = [
            OffsetQuery(QUEUE, "min"),
            OffsetQuery(QUEUE, "max"),
            OffsetQuery(QUEUE, "time", 1),
            OffsetQuery(QUEUE, "committed", group="g"),
        ]
        return list(self.client.look_up(queries))

    def reader(self, offset: int = 0) -> QueueReader:
        self.client.queues("t")
        return self.client.open_reader(QUEUE, offset, message_filter=MessageFilter())

    def read(self, reader: QueueReader, to: int) -> list[int]:
        offsets: list[int] = []
        for _ in range(10_000):
            if reader.position >= to:
                return offsets
            part = reader.poll()
            if part is None:
                self.client.wait([reader], 1_000)
            else:
                assert part.skipped == 0
                offsets += [record.queue_offset for record in part.records]
        raise AssertionError(f"{reader!r}")
