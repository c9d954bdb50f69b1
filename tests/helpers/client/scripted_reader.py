"""A reader on scripted transports with a manual clock, and a queue that answers it as a broker does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqio.client.connection import Connection
from rmqio.client.exchange import Waiter
from rmqio.client.reader import PipelinedReader, ReadQueue
from rmqio.model import MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import Command
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport
from tests.helpers.wire.stored_bytes import Stored

ADDRESS = "broker:10911"
QUEUE = MessageQueue("orders", "broker-a", 3)


class Queue:
    """A responder that serves one queue of bodies as a broker does."""

    def __init__(self, size: int, *, cap: int = 32, tags: Sequence[str] = ("",)) -> None:
        self.size, self.cap, self.tags = size, cap, tags
        self.minimum = 0
        self.pulls: list[tuple[int, int, bool]] = []
        self.held: list[Command] = []
        self.instead: list[Callable[[Command], Sequence[Command | bytes]]] = []

    def __call__(self, request: Command) -> Sequence[Command | bytes]:
        offset, wanted = int(request.ext["queueOffset"]), int(request.ext["maxMsgNums"])
        suspend = bool(int(request.ext["sysFlag"]) & 2)
        self.pulls.append((offset, wanted, suspend))
        if self.instead:
            return self.instead.pop(0)(request)
        if offset == self.size and suspend:
            self.held.append(request)
            return []
        return [self.answer(offset, wanted)]

    def answer(self, offset: int, wanted: int) -> Command:
        if offset == self.size:
            return self.command(19, offset, remark="OFFSET_OVERFLOW_ONE")
        if offset > self.size:
            return self.command(21, self.size, remark="OFFSET_OVERFLOW_BADLY")
        if offset < self.minimum:
            return self.command(21, self.minimum, remark="OFFSET_TOO_SMALL")
        end = min(offset + min(wanted, self.cap), self.size)
        return self.command(0, end, b"".join(self.stored(n).encode() for n in range(offset, end)), "FOUND")

    def stored(self, offset: int) -> Stored:
        tag = self.tags[offset % len(self.tags)]
        properties = b"TAGS\x01" + tag.encode() + b"\x02" if tag else b""
        return Stored(body=b"%d" % offset, queue_id=3, queue_offset=offset, properties=properties)

    def command(self, code: int, next_offset: int, body: bytes = b"", remark: str | None = None) -> Command:
        ext = {
            "nextBeginOffset": next_offset,
            "minOffset": self.minimum,
            "maxOffset": self.size,
            "suggestWhichBrokerId": 0,
        }
        return Command(code, {name: str(value) for name, value in ext.items()}, body, remark=remark)


class Setup:
    """A reader, its clock and its transports. `route` is called when the reader asks the link for the connection."""

    def __init__(
        self, queue: Queue, *transports: ScriptedTransport, offset: int = 0, tags: str = "*", **options: int
    ) -> None:
        self.queue = queue
        self.clock = ManualClock()
        self.transports = list(transports) or [ScriptedTransport(responder=queue, clock=self.clock)]
        self.environment = environment_on(self.clock, ScriptedNetwork({ADDRESS: self.transports}))
        self.options = ClientOptions("ns:9876", **options)  # type: ignore[arg-type]
        self._connection = Connection(ADDRESS, environment=self.environment)
        self.refreshes = 0
        self.is_replica = False
        self.suggested: list[int] = []
        self.reader = PipelinedReader(
            ReadQueue(QUEUE, QUEUE, MessageFilter(tags)),
            offset,
            group="readers",
            link=self,
            options=self.options,
            environment=self.environment,
        )

    def connection(self) -> Connection:
        return self._connection

    def refresh(self) -> None:
        self.refreshes += 1

    def suggest(self, broker_id: int) -> None:
        self.suggested.append(broker_id)

    def distrust(self) -> bool:
        return False

    def wait(self, timeout_ms: float = 1_000) -> bool:
        return Waiter(self.environment).wait([self.reader], timeout_ms)

    def read(self, to: int) -> list[int]:
        offsets: list[int] = []
        for _ in range(100_000):
            if self.reader.position >= to:
                return offsets
            part = self.reader.poll()
            if part is None:
                self.wait()
            else:
                assert part.skipped == 0
                offsets += [record.queue_offset for record in part.records]
        raise AssertionError(f"{self.reader!r} does not reach {to}")
