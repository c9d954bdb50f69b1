"""Reads all queues of a topic in a thread: what the topic holds at the start, and then what comes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

from rmqio.errors import LocalError, OffsetOutOfRange, RequestTimeout, RmqioError
from rmqio.interfaces import ClientFactory, FetchedBatch, QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue

_WAIT_MS: Final = 200
_ROUTE_S: Final = 15.0
"""The time between looks for new queues."""
_STOP_S: Final = 5.0
_PAUSE_S: Final = 2.0
"""The time between an error of a broker and the next try."""
_LOG_S: Final = 60.0
_STALLED_S: Final = 60.0
"""The longest time at the start in which no queue gives anything. A broker holds a request for half of it at most."""
_LOGGER: Final = logging.getLogger(__name__)


class Taker(Protocol):
    """A table that takes the messages of a topic. All calls come from one thread."""

    def begin(self) -> None:
        """Does what comes before the first message."""
        ...

    def begin_anew(self) -> None:
        """Takes all messages from now on for a table that replaces this one when the queues were read to their ends."""
        ...

    def first(self, queue: MessageQueue, oldest: int) -> int:
        """Returns the offset at which a queue is begun. `oldest`: the first one that it still has."""
        ...

    def require_known(self, ends: Mapping[MessageQueue, int]) -> None:
        """Raises `LocalError` at the start if the queues, with their ends, cannot be all of the topic."""
        ...

    def take(self, queue: MessageQueue, fetched: FetchedBatch) -> None:
        """Takes messages. Raises `LocalError` for a bad one."""
        ...

    def rest(self, *, is_loading: bool) -> None:
        """Does what can wait until all queues were polled."""
        ...


class _CreatedAnew(Exception):
    """A queue ends before what was read of it."""


class Follower:
    """Reads a topic for a table.

    Args:
      topic: the topic.
      title: the beginning of a message, such as "table of topic users".
      factory: creates the client.
      taker: the table.
      wanted: the messages that brokers send.
    """

    def __init__(
        self, topic: str, title: str, factory: ClientFactory, taker: Taker, wanted: MessageFilter | None = None
    ) -> None:
        self._topic, self._title, self._factory, self._taker = topic, title, factory, taker
        self._wanted = wanted or MessageFilter("*")
        self.positions: dict[MessageQueue, int] = {}
        """The next offset of each queue. It is never ahead of what the table has taken."""
        self.fresh_at = 0.0
        """When all queues were last read to their end (Unix s)."""
        self.error: Exception | None = None
        """The reason why it has ended."""
        self._ends: dict[MessageQueue, int] | None = {}
        """Ends of the queues at the start; None: the table is as new as they were."""
        self._logged: dict[str, float] = {}
        """When it was logged that a broker does not answer. The queues of others go on."""
        self._is_ready, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"read {topic}", daemon=True)

    def start(self) -> None:
        """Reads what the topic holds now. Raises `RmqioError` if that is not possible."""
        self._thread.start()
        self._is_ready.wait()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stopped.set()
        self._thread.join(_STOP_S)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._taker.begin()
            self._read_for_ever()
        except Exception as error:  # noqa: BLE001  # whoever looks up gets it
            self.error = error
        finally:
            self._is_ready.set()

    def _read_for_ever(self) -> None:
        client = self._factory.queue_client()
        try:
            while not self._stopped.is_set():
                try:
                    self._read(client)
                except RmqioError as error:
                    if not self._is_ready.is_set() or isinstance(error, LocalError):
                        raise
                    _LOGGER.warning("%s: %s", self._title, error)
                    self._stopped.wait(_PAUSE_S)
        finally:
            client.close()

    def _read(self, client: QueueClient) -> None:
        """Reads until it is stopped. Raises `RmqioError` if a broker fails, and can be called again then."""
        readers: dict[MessageQueue, QueueReader] = {}
        next_look = 0.0
        moved_at, before = time.monotonic(), -1
        is_whole = False
        try:
            while not self._stopped.is_set():
                if time.monotonic() >= next_look:
                    is_whole = self._open(client, readers)
                    next_look = time.monotonic() + _ROUTE_S
                is_fresh = is_whole and readers.keys() >= self.positions.keys()
                for queue, reader in list(readers.items()):
                    try:
                        is_fresh &= self._poll(client, queue, reader) or reader.is_at_end
                    except _CreatedAnew as error:
                        _LOGGER.warning(
                            "%s: the topic was deleted and created again: %s; it is read from its beginning",
                            self._title,
                            error,
                        )
                        self._begin_anew(readers)
                        is_fresh = is_whole = False
                        next_look = 0.0
                        break
                    except RmqioError as error:
                        self._note_away(queue.broker, error)
                        readers.pop(queue).close()
                        is_fresh = False
                if is_fresh:
                    self.fresh_at = time.time()
                if is_whole and self._ends and all(self.positions[each] >= end for each, end in self._ends.items()):
                    self._ends = None
                    self.fresh_at = time.time()
                    self._is_ready.set()
                if (now := sum(self.positions.values())) != before or self._is_ready.is_set():
                    self._taker.rest(is_loading=self._ends is not None)
                    moved_at, before = time.monotonic(), now
                elif time.monotonic() - moved_at > _STALLED_S:
                    raise self._stalled()
                if readers:
                    client.wait(readers.values(), _WAIT_MS)
                else:
                    self._stopped.wait(_PAUSE_S)
                    next_look = 0.0
        finally:
            for reader in readers.values():
                reader.close()

    def _stalled(self) -> RequestTimeout:
        queue, end = next((each, end) for each, end in (self._ends or {}).items() if self.positions[each] < end)
        return RequestTimeout(
            f"{queue} ends at {end}, and its broker has sent nothing from offset {self.positions[queue]} on for "
            f"{_STALLED_S:g} s: is it overloaded, or does something between drop its answers?"
        )

    def _begin_anew(self, readers: dict[MessageQueue, QueueReader]) -> None:
        for reader in readers.values():
            reader.close()
        readers.clear()
        self._taker.begin_anew()
        self.positions = {}
        self._ends = {}

    def _open(self, client: QueueClient, readers: dict[MessageQueue, QueueReader]) -> bool:
        """Opens what is not open. Returns whether all queues of the route are: else rows can be missing."""
        tried: set[str] = set()
        for queue in client.queues(self._topic, refresh=True):
            if queue in readers or queue.broker in tried:
                continue
            try:
                if queue not in self.positions:
                    self.positions[queue] = self._taker.first(queue, client.min_offset(queue))
                if self._ends is not None:
                    self._ends[queue] = client.max_offset(queue)
                readers[queue] = client.open_reader(queue, self.positions[queue], message_filter=self._wanted)
            except RmqioError as error:
                tried.add(queue.broker)
                self._note_away(queue.broker, error)
        if self._ends is not None:
            if self._is_ready.is_set() and (tried or not self._ends):
                return False  # brokers that are away come back
            if not self._ends:
                raise LocalError(f"the topic {self._topic} has no queue that can be read: are its brokers down?")
            self._taker.require_known(self._ends)
        return not tried

    def _note_away(self, broker: str, error: RmqioError) -> None:
        """Logs that a broker does not answer, now and then. Raises the error at the start, or if it will stay."""
        if not self._is_ready.is_set() or isinstance(error, LocalError):
            raise error
        now = time.monotonic()
        if now - self._logged.get(broker, -_LOG_S) >= _LOG_S:
            self._logged[broker] = now
            _LOGGER.warning("%s: rows of %s stay as they are: %s", self._title, broker, error)

    def _poll(self, client: QueueClient, queue: MessageQueue, reader: QueueReader) -> bool:
        try:
            fetched = reader.poll()
        except OffsetOutOfRange as error:
            start, end = client.min_offset(queue), client.max_offset(queue)
            if self.positions[queue] > end:
                raise _CreatedAnew(f"{queue} ends at {end}, and was read up to {self.positions[queue]}") from error
            # retention was faster
            _LOGGER.warning("%s: %s; it continues at %d", self._title, error, start)
            self.positions[queue] = start
            reader.seek(start)
            return False
        if fetched is None:
            return False
        self._taker.take(queue, fetched)
        self.positions[queue] = fetched.next_offset
        return fetched.next_offset >= fetched.max_offset
