"""A topic of rules: the key of a message is the name of a file, its body the text; the newest of each name counts.

A message without a body removes the text. Messages that retention or compaction has deleted are not there any more:
rules age out with their topic.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from dataclasses import dataclass, field
from typing import Final

from rmqio.errors import OffsetOutOfRange, RmqioError
from rmqio.interfaces import ClientFactory, OffsetQuery, QueueClient
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.formats.base import RuleText

_WAIT_MS: Final = 500


@dataclass(slots=True)
class _Seen:
    """This process's knowledge of a topic.

    Attributes:
      queues: those that it has had.
      newest: of each queue that was read to its end, the end, and the store time of its last message (Unix ms).
      refills: how often messages that were read had been replaced.
    """

    queues: set[MessageQueue] = field(default_factory=set)
    newest: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    refills: int = 0


_SEEN: Final[dict[bytes, _Seen]] = {}
"""By topic and client."""


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
            last: dict[MessageQueue, tuple[int, int]] = {}
            ranges = self._ranges(client)
            self._refills(client)
            for queue, begin, end in ranges:
                record = self._read(client, queue, begin, end, deadline, newest, problems)
                if record is not None and record.queue_offset == end - 1:
                    last[queue] = end, record.store_timestamp_ms
            self._seen().newest = last
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
        """See `Source`. It is made of the first and last offsets of all queues: one question to each broker.

        A topic that was deleted, created again and filled to the same offsets has newer messages at these offsets.
        """
        client = self.factory.queue_client()
        try:
            found = self._ranges(client), self._refills(client)
        finally:
            client.close()
        return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()

    def _refills(self, client: QueueClient) -> int:
        """Returns how often what was read had been replaced by newer messages at the same offsets."""
        seen = self._seen()
        newest = seen.newest
        ends = client.look_up([OffsetQuery(queue, "time", time_ms + 1) for queue, (_, time_ms) in newest.items()])
        if any(isinstance(each, int) and each < end for each, (end, _) in zip(ends, newest.values(), strict=True)):
            seen.newest = {}
            seen.refills += 1
        return seen.refills

    def _seen(self) -> _Seen:
        return _SEEN.setdefault(hashlib.sha256(pickle.dumps(self)).digest(), _Seen())

    def _ranges(self, client: QueueClient) -> list[tuple[MessageQueue, int, int]]:
        queues = sorted(client.queues(self.topic, refresh=True))
        self._check_route(queues)
        newest = self._seen().newest
        asked: list[OffsetQuery] = []
        for queue in queues:
            end, _ = newest.get(queue, (0, 0))  # a replica that is behind would bring older rules back
            asked += [OffsetQuery(queue, "min"), OffsetQuery(queue, "max", at_least=end)]
        answers = client.look_up(asked)
        numbers: list[int] = []
        for each in answers:
            if isinstance(each, RmqioError):
                raise each
            assert each is not None
            numbers.append(each)
        return list(zip(queues, numbers[::2], numbers[1::2], strict=True))

    def _check_route(self, queues: list[MessageQueue]) -> None:
        """Raises `RuleError` if queues are gone that this process has seen: their rules would go, too."""
        seen = self._seen().queues
        gone = seen.difference(queues)
        if gone:
            reason = (
                f"{len(gone)} of its queues, such as {min(gone)}, are not in the route any more: their broker is down. "
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
    ) -> Record | None:
        """Reads a queue, and returns its last message."""
        last: Record | None = None
        if begin >= end:
            return last
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
                    last = record
        finally:
            reader.close()
        return last

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
