"""The watcher: asks brokers and the exporter again and again in threads of its own, so that no view waits for them."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from rmqio.command_line.cluster import QueueState, missing_topic, queues_of, time_of
from rmqio.command_line.output import one_line
from rmqio.errors import RmqioError, TopicNotExist, TransportError
from rmqio.hints import did_you_mean
from rmqio.interfaces import OffsetQuery, QueueClient
from rmqio.model import MessageQueue
from rmqio.prometheus.export import Sample, scrape
from rmqio.prometheus.values import exported_name
from rmqio.telemetry import METRICS
from rmqio.watch.frames import WINDOW_S, Frame, History, Offsets, PipelineView, Target

# The pipeline's own metrics: what its exporter serves, as a view. Pure but for the class that asks.

ERRORS: Final = (
    "decode_failures",
    "send_failures",
    "lookup_failures",
    "row_failures",
    "commit_failures",
    "offsets_skipped",
    "unknown_outcomes",
    "weak_acknowledgements",
    "table_refresh_failures",
    "pull_retries",
    "send_retries",
    "row_write_retries",
    "dead_letters",
)
"""The counters that say that something went wrong, the worst first."""


class Pipeline:
    """Asks the exporter, and remembers what it said."""

    def __init__(self, url: str, every_s: float, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        window_s = max(WINDOW_S, 2.5 * every_s)
        self._read, self._sent = Offsets(window_s), Offsets(window_s)
        self._last: dict[str, float] = {}
        self._grown = 0.0
        self._seen = False
        self._answered_ms: int | None = None
        self._lag_s: float | None = None
        self._watermark_lag_s: float | None = None

    def look(self, now_ms: int) -> PipelineView:
        """Ask, and return the view; if nobody answers, with the values of the last answer and the reason."""
        try:
            self.take(scrape(self._url, self._timeout_s), now_ms)
        except TransportError as error:
            return self.view(now_ms, str(error))
        return self.view(now_ms)

    def take(self, samples: Iterable[Sample], now_ms: int) -> None:
        """Take in an answer."""
        counters: dict[str, float] = defaultdict(float)
        gauges: dict[str, float] = {}
        for name, _, value in samples:
            if math.isfinite(value):
                counters[name] += value
                gauges[name] = max(gauges.get(name, value), value)
        self._answered_ms = now_ms
        self._lag_s = gauges.get(_name("lag_seconds"))
        self._watermark_lag_s = gauges.get(_name("watermark_lag_seconds"))
        for offsets, metric in ((self._read, "records_read"), (self._sent, "messages_sent")):
            if (count := counters.get(_name(metric))) is not None:
                offsets.add(now_ms / 1000, round(count))
        found = {name: counters.get(_name(name), 0.0) for name in ERRORS}
        if self._seen:  # a counter that is smaller than before belongs to a new run
            self._grown += sum(n - self._last[k] if n >= self._last[k] else n for k, n in found.items())
        self._last, self._seen = found, True

    def view(self, now_ms: int, error: str | None = None) -> PipelineView:
        """Return what is known."""
        return PipelineView(
            self._url, self._answered_ms, error, self._lag_s, self._watermark_lag_s,
            self._read.rate(now_ms / 1000), self._sent.rate(now_ms / 1000),
            {name: value for name, value in self._last.items() if value}, self._grown,
        )  # fmt: skip


def _name(metric: str) -> str:
    return exported_name(METRICS[metric])


# How long messages have waited: looks up when each oldest unread message was stored, beside the polls.

_EVERY_S: Final = 2.0
"""A look-up is a pull of one message. A message that a broker no longer has in memory is a read of its disk."""


class UnreadTimes:
    """When the oldest message that the group has not read was stored, by queue.

    One thread per broker looks up its queues in turn, so that a broker that hangs holds up its own thread only, and
    polls never wait. The time of a queue is forgotten when the group has moved on.
    """

    def __init__(self, client: QueueClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[MessageQueue, tuple[int, int | None]] = {}
        self._wanted: dict[str, dict[MessageQueue, int]] = {}
        self._wakes: dict[str, threading.Event] = {}
        self._over = threading.Event()

    def want(self, states: Sequence[QueueState]) -> dict[MessageQueue, int | None]:
        """Look up the times for these states; return the times that are known. Never waits."""
        wanted: dict[str, dict[MessageQueue, int]] = {}
        for state in states:
            places = wanted.setdefault(state.queue.broker, {})
            if state.error is None and state.committed is not None and state.lag:
                places[state.queue] = max(state.committed, state.min_offset)
        found = {}
        with self._lock:
            self._wanted = wanted
            for queue, offset in (pair for places in wanted.values() for pair in places.items()):
                # A group that reads keeps moving: the last known time is a few polls old, which is near enough.
                if queue in self._known and offset >= self._known[queue][0]:
                    found[queue] = self._known[queue][1]
            for broker, places in wanted.items():
                if places and not self._over.is_set():
                    self._wake(broker)
        return found

    def close(self) -> None:
        """End the threads, without waiting for those that wait for a broker."""
        with self._lock:
            self._over.set()
            for wake in self._wakes.values():
                wake.set()

    def _wake(self, broker: str) -> None:
        if broker not in self._wakes:
            self._wakes[broker] = threading.Event()
            threading.Thread(target=self._work, args=(broker,), name=f"rmqio watch {broker}", daemon=True).start()
        self._wakes[broker].set()

    def _work(self, broker: str) -> None:
        wake = self._wakes[broker]
        while wake.wait():
            wake.clear()
            with self._lock:
                if self._over.is_set():
                    return
                places = dict(self._wanted.get(broker, {}))
                known = dict(self._known)
            for queue, offset in places.items():
                if self._over.is_set():
                    return
                if queue in known and known[queue][0] == offset and known[queue][1] is not None:
                    continue
                try:
                    stored = time_of(self._client, queue, offset)
                except RmqioError:
                    break  # the polls show that the broker is away
                with self._lock:
                    self._known[queue] = offset, stored
            self._over.wait(_EVERY_S)


ROUTES_EVERY_S: Final = 10.0
GroupsOf = Callable[[str], list[str]]
"""Returns the groups of a topic."""
_Answers = dict[tuple[MessageQueue, str], int | RmqioError | None]


class Watcher:
    """Polls, and keeps what it saw. `frame` and `points` are for any thread, and never wait for a broker.

    A queue that was seen once stays: a name server forgets the queues of a broker that is away.
    """

    def __init__(
        self,
        client: QueueClient,
        target: Target,
        *,
        every_s: float,
        timeout_ms: int,
        groups_of: GroupsOf | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._target, self._clock = client, target, clock
        self._every_s, self._timeout_ms, self._groups_of = every_s, timeout_ms, groups_of
        self._history = History(target, every_s)
        self._unread = UnreadTimes(client)
        url = target.metrics_url
        self._pipeline = None if url is None else Pipeline(url, every_s, timeout_ms / 1000)
        self._pipeline_view: PipelineView | None = None
        self._queues: frozenset[MessageQueue] = frozenset()
        self._missing: frozenset[str] = frozenset(target.dead_letter_topics)
        self._route_notes: tuple[str, ...] = ()
        self._group_note: str | None = None
        self._latest: Frame | None = None
        self._points: list[dict[str, Any]] = []
        self._failure: Exception | None = None
        self._count = 0
        self._changed = threading.Condition()
        self._is_over = threading.Event()

    def start(self) -> None:
        """Find the queues, look once, and go on in threads. Raises `CommandFailed` for a topic that does not exist."""
        self.begin()
        for work, every_s in ((self.poll, self._every_s), (self._discover, ROUTES_EVERY_S)):
            self._in_thread(work, every_s)
        if self._pipeline is not None:
            self._in_thread(self._ask_pipeline, self._every_s)

    def begin(self) -> None:
        """Find the queues and look once, without threads."""
        found: set[MessageQueue] = set()
        for topic in self._target.topics:
            found.update(queues_of(self._client, topic))
        self._queues = frozenset(found)
        self._look_for_letters()
        if self._pipeline is not None:
            self._ask_pipeline()
        self.poll()
        self._look_for_group()

    def poll(self) -> None:
        """Ask all brokers at once, and make the next frame."""
        queues = sorted(self._queues)
        states = self._states(queues)
        now_ms = round(self._clock() * 1000)
        letters = self._target.dead_letter_topics
        unread = self._unread.want([state for state in states if state.queue.topic not in letters])
        has_offsets = any(state.committed for state in states)
        notes = self._route_notes if has_offsets or not self._group_note else (*self._route_notes, self._group_note)
        frame = self._history.frame(
            now_ms, states, unread_ms=unread, pipeline=self._pipeline_view, notes=notes, missing=self._missing
        )
        with self._changed:
            self._latest, self._points = frame, list(self._history.points)
            self._count += 1
            self._changed.notify_all()

    def frame(self) -> Frame:
        """Return the newest frame. Raises what ended the polls, if anything did."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            assert self._latest is not None, "start comes first"
            return self._latest

    def points(self, after_ms: int = 0) -> list[dict[str, Any]]:
        """Return the points of the plots that are newer."""
        with self._changed:
            return [point for point in self._points if point["time_ms"] > after_ms]

    def wait(self, seen: int, timeout_s: float) -> int:
        """Wait until more than `seen` frames were made, or the time has passed. Returns how many there are."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > seen or self._failure is not None, timeout_s)
            return self._count

    def close(self) -> None:
        """End the threads, without waiting for those that wait for a broker. The client is closed after it."""
        self._is_over.set()
        self._unread.close()

    # ---- what the threads do -----------------------------------------------------------------------------------------

    def _in_thread(self, work: Callable[[], None], every_s: float) -> None:
        def run() -> None:
            while not self._is_over.wait(every_s):
                try:
                    work()
                except Exception as error:  # noqa: BLE001  # a thread that ends silently would show old figures forever
                    if self._is_over.is_set():
                        return
                    with self._changed:
                        self._failure = error
                        self._changed.notify_all()
                    return

        threading.Thread(target=run, name=f"rmqio watch {work.__name__}", daemon=True).start()

    def _states(self, queues: list[MessageQueue]) -> list[QueueState]:
        group, letters = self._target.group, self._target.dead_letter_topics
        queries: list[OffsetQuery] = []
        for queue in queues:
            if group is not None and queue.topic not in letters:
                queries.append(OffsetQuery(queue, "committed", group=group))
            queries += [OffsetQuery(queue, "min"), OffsetQuery(queue, "max")]
        answers: _Answers = {
            (query.queue, query.kind): answer
            for query, answer in zip(queries, self._client.look_up(queries, timeout_ms=self._timeout_ms), strict=True)
        }
        return [_state(queue, answers) for queue in queues]

    def _discover(self) -> None:
        """Find queues and topics that are new. Keeps what was there before."""
        notes = []
        for topic in self._target.topics:
            try:
                self._queues |= frozenset(self._client.queues(topic, refresh=True))
            except TopicNotExist:
                notes.append(f"topic {topic!r} is unknown to the name servers: it was deleted, or its brokers are down")
            except RmqioError as error:
                notes.append(f"routes: {one_line(str(error))}")
        self._route_notes = (*dict.fromkeys(notes), *self._look_for_letters())
        self._look_for_group()

    def _look_for_letters(self) -> list[str]:
        missing, notes = set(), []
        known = {queue.topic for queue in self._queues}
        for topic in self._target.dead_letter_topics:
            try:
                self._queues |= frozenset(self._client.queues(topic, refresh=True))
            except TopicNotExist:
                if topic not in known:
                    missing.add(topic)
                    if not topic.startswith("%DLQ%"):
                        notes.append(missing_topic(self._client, topic, advice="it is shown when it is there"))
            except RmqioError as error:
                notes.append(f"routes: {one_line(str(error))}")
        self._missing = frozenset(missing)
        return notes

    def _look_for_group(self) -> None:
        """A group without offset is new, or its name is wrong: say which one there is."""
        group, latest = self._target.group, self._latest
        if group is None or latest is None or any(view.state.committed for view in latest.queues):
            self._group_note = None
            return
        known: set[str] = set()
        for topic in self._target.topics:
            if self._groups_of is not None:
                try:
                    known.update(self._groups_of(topic))
                except RmqioError:  # not permitted, or a broker is away, which is shown elsewhere
                    return
        near = did_you_mean(group, sorted(known - {group}))
        self._group_note = f"group {group!r} has no offset{near}" if near else None

    def _ask_pipeline(self) -> None:
        assert self._pipeline is not None
        self._pipeline_view = self._pipeline.look(round(self._clock() * 1000))


def _state(queue: MessageQueue, answers: _Answers) -> QueueState:
    found = {kind: answers.get((queue, kind)) for kind in ("min", "max", "committed")}
    errors = [error for error in found.values() if isinstance(error, RmqioError)]
    away = next((error for error in errors if isinstance(error, TransportError)), errors[0] if errors else None)
    low, high, committed = found["min"], found["max"], found["committed"]
    if isinstance(low, int) and isinstance(high, int) and not isinstance(committed, RmqioError):
        return QueueState(queue, low, high, committed=committed)
    return QueueState(queue, 0, 0, error=one_line(str(away)) if away is not None else "no answer")
