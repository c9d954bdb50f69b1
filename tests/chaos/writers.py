"""Producers that send numbered messages through whatever happens, and know what was acknowledged."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from rmqio.client.producer import RemotingProducer
from rmqio.errors import BrokerSystemError, RmqioError
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.options import ClientOptions
from rmqio.security import UNSECURED, Security

Kind = Literal["single", "batch", "ordered"]
EVENT_TIME: Final = "event_time_ms"
SENT_ID: Final = "chaos_id"
"""The property with the id of what was sent, which copies keep."""
"""The property with a message's event time: up to a second behind the clock, for one in forty up to `LATE_MS`."""
LATE_MS: Final = 15_000
_PAUSE_S = 0.2


class Place(NamedTuple):
    """The place at which a message was stored, by its acknowledgement."""

    queue: MessageQueue
    offset: int


class Writer:
    """One producer in a thread of its own. A message that is not acknowledged is sent again, until it is.

    Args:
      name: begins its messages' ids, which are their bodies: `name-00000017`.
      kind: one by one, in batches to the queues in turn, or in batches to one queue, where their order must hold.
      topic: where to; of an ordered one the queue of each message is 0 of its first broker.
      size: messages of a batch.
      pause_s: between requests.
      seed: of how late messages are.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        topic: str,
        *,
        name_server: str,
        size: int,
        pause_s: float,
        seed: int = 0,
        security: Security = UNSECURED,
    ) -> None:
        self.name, self.kind, self.topic = name, kind, topic
        self.acked: dict[str, Place] = {}
        self.unsure: set[str] = set()
        """Ids of which a try has ended without an answer: they may be stored several times."""
        self.tried = 0
        """Messages; each was to be sent, whatever came of it."""
        self.longest_wait_s = 0.0
        """For an acknowledgement."""
        self.error: BaseException | None = None
        self._size, self._pause_s = size if kind != "single" else 1, pause_s
        self._producer = RemotingProducer(
            ClientOptions(
                name_server, request_timeout_ms=1_500, max_retries=2, route_refresh_ms=2_000, security=security
            ),
            f"chaos-{name}",
        )
        self._queue: MessageQueue | None = None
        self._rng = random.Random(f"{seed} {name}")
        self._is_enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def __repr__(self) -> str:
        return f"<Writer {self.name}, {len(self.acked)} of {self.tried} acknowledged, error {self.error!r}>"

    @property
    def retries(self) -> int:
        return self._producer.statistics.retries

    @property
    def unknown_outcomes(self) -> int:
        return self._producer.statistics.unknown_outcomes

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """After the messages that it is at have been acknowledged; else `error` says so."""
        self._is_enough.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.error = self.error or TimeoutError(f"not acknowledged within {timeout_s:g} s")
        self._producer.close()

    def _run(self) -> None:
        try:
            for first in itertools.count(step=self._size):
                if self._is_enough.wait(self._pause_s):
                    return
                ids = [f"{self.name}-{number:08d}" for number in range(first, first + self._size)]
                self.tried += len(ids)
                begin = time.monotonic()
                for id_, result in zip(ids, self._until_acked(ids), strict=True):
                    self.acked[id_] = Place(result.queue, result.queue_offset)
                self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - begin)
        except BaseException as error:  # noqa: BLE001 (told by the main thread)
            self.error = error

    def _until_acked(self, ids: Sequence[str]) -> Sequence[SendResult]:
        send = self._request([self._message(id_) for id_ in ids], ids)
        while True:
            before = self.unknown_outcomes
            is_unsure = False
            try:
                return send()
            except RmqioError as error:
                if not (error.retriable or error.stale_route):
                    raise
                is_unsure = isinstance(error, BrokerSystemError)
            finally:
                if is_unsure or self.unknown_outcomes > before:
                    self.unsure.update(ids)
            time.sleep(_PAUSE_S)

    def _message(self, id_: str) -> Message:
        late_ms = self._rng.uniform(0, LATE_MS if self._rng.random() < 0.025 else 1_000)
        at_ms = int(time.time() * 1000 - late_ms)
        return Message(id_.encode(), topic=self.topic, properties={EVENT_TIME: str(at_ms), SENT_ID: id_})

    def _request(self, messages: list[Message], ids: Sequence[str]) -> Callable[[], Sequence[SendResult]]:
        producer = self._producer
        if self.kind == "single":
            return lambda: [producer.send(messages[0], message_id=ids[0])]
        if self.kind == "batch":
            return lambda: producer.send_batch(messages, message_ids=ids)

        def ordered() -> Sequence[SendResult]:
            self._queue = self._queue or producer.queues(self.topic)[0]
            return producer.submit(messages, self._queue, ordered=True, message_ids=ids).result()

        return ordered
