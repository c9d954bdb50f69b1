"""A topic of rules: the key of a message is the name of a file, its body the text; the newest of each name counts.

A message without a body removes the text. Messages that retention or compaction has deleted are not there any more:
rules age out with their topic.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from dataclasses import dataclass
from typing import Final

from rmqio.errors import OffsetOutOfRange, RmqioError
from rmqio.interfaces import ClientFactory, OffsetQuery, QueueClient
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.formats.base import RuleText

_WAIT_MS: Final = 500
_SEEN: Final[dict[bytes, set[MessageQueue]]] = {}
"""The queues that this process has seen, by topic and client."""


@dataclass(frozen=True, slots=True)
class Topic:
    """See the module. `timeout_s`: how long one reading may take; `max_bytes`: what all texts may have together."""

    topic: str
    factory: ClientFactory
    timeout_s: float = 30.0
    max_bytes: int = 256 << 20

    def texts(self) -> tuple[RuleText, ...]:
        """See `Source`. Reads the topic to the end that it has now. Raises `RmqioError` if a broker is away."""
        client = self.factory.queue_client()
        try:
            newest: dict[str, tuple[tuple[int, MessageQueue, int], Record]] = {}
            problems: list[Problem] = []
            deadline = time.monotonic() + self.timeout_s
            for queue, begin, end in self._ranges(client):
                self._read(client, queue, begin, end, deadline, newest, problems)
        finally:
            client.close()
        texts = []
        for name, (_, record) in sorted(newest.items()):
            if record.body:
                try:
                    texts.append(RuleText(name, record.body.decode("utf-8-sig")))
                except UnicodeDecodeError as error:
                    reason = f"this is not UTF-8: byte {error.start} is not ({_place(record)})"
                    problems.append(Problem(name, 0, "", reason))
        if sum(len(record.body) for _, record in newest.values()) > self.max_bytes:
            problems.append(Problem(self.topic, 0, "", f"the texts have more than {self.max_bytes:,} bytes"))
        if problems:
            raise RuleError(tuple(problems))
        return tuple(texts)

    def signature(self) -> str:
        """See `Source`. It is made of the first and last offsets of all queues: one question to each broker."""
        client = self.factory.queue_client()
        try:
            found = self._ranges(client)
        finally:
            client.close()
        return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()

    def _ranges(self, client: QueueClient) -> list[tuple[MessageQueue, int, int]]:
        queues = sorted(client.queues(self.topic, refresh=True))
        self._check_route(queues)
        answers = client.look_up([OffsetQuery(queue, kind) for queue in queues for kind in ("min", "max")])
        numbers: list[int] = []
        for each in answers:
            if isinstance(each, RmqioError):
                raise each
            assert each is not None
            numbers.append(each)
        return list(zip(queues, numbers[::2], numbers[1::2], strict=True))

    def _check_route(self, queues: list[MessageQueue]) -> None:
        """Raises `RuleError` if queues are gone that this process has seen: their rules would go, too."""
        seen = _SEEN.setdefault(hashlib.sha256(pickle.dumps(self)).digest(), set())
        gone = seen.difference(queues)
        if gone:
            reason = (
                f"{len(gone)} of its queues, such as {min(gone)}, are not in the route any more: their broker is away. "
                "If they were removed on purpose, start again"
            )
            raise RuleError((Problem(self.topic, 0, "", reason),))
        seen.update(queues)

    def _read(
        self,
        client: QueueClient,
        queue: MessageQueue,
        begin: int,
        end: int,
        deadline: float,
        newest: dict[str, tuple[tuple[int, MessageQueue, int], Record]],
        problems: list[Problem],
    ) -> None:
        if begin >= end:
            return
        reader = client.open_reader(queue, begin, message_filter=MessageFilter())
        try:
            while reader.position < end:
                if time.monotonic() > deadline:
                    reason = f"{queue} was not read to its end within {self.timeout_s:g} s"
                    raise RuleError((Problem(self.topic, 0, "", reason),))
                client.wait([reader], _WAIT_MS)
                try:
                    fetched = reader.poll()
                except OffsetOutOfRange as error:
                    reader.seek(error.minimum)
                    continue
                if fetched is None:
                    continue
                problems += [Problem(self.topic, 0, "", str(each)) for each in fetched.corrupt]
                for record in fetched.records:
                    self._take(record, newest, problems)
        finally:
            reader.close()

    def _take(
        self,
        record: Record,
        newest: dict[str, tuple[tuple[int, MessageQueue, int], Record]],
        problems: list[Problem],
    ) -> None:
        if not record.keys:
            reason = f"a message of rules needs a key, which is the name of its file ({_place(record)})"
            problems.append(Problem(self.topic, 0, "", reason))
            return
        name = record.keys[0]
        place = (record.store_timestamp_ms, record.queue, record.queue_offset)
        if name not in newest or newest[name][0] < place:
            newest[name] = place, record


def _place(record: Record) -> str:
    return f"{record.queue}, offset {record.queue_offset}"
