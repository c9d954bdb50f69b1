"""A ledger of what a read returned, checked against what was sent; and pipelines that keep one while they run.

The ledger is pure. `Lab` and `Run` are for tests of the read on a real broker: topics with known messages, and
pipelines in their own threads. These end by themselves, by a `Stop` from their sink or, if they hang, by force.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple
from weakref import WeakSet

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom
from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.transforms.shared import close_shared_clients
from tests.helpers.client.raw_send import read_to, records_of, send_all
from tests.helpers.waiting import at_most, missing, told, until

# ---- the ledger -----------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One message as it was read."""

    queue: MessageQueue
    offset: int
    id: object


Sent = Mapping[MessageQueue, Mapping[int, object]]
"""From offset to id, by queue."""


@dataclass(frozen=True)
class Findings:
    """The faults according to a ledger. False if there is none."""

    lost: tuple[Entry, ...] = ()
    """Messages that were sent and never read."""
    strange: tuple[Entry, ...] = ()
    """Messages that were read and never sent: nothing was sent there, or the id is another."""
    duplicated: tuple[Entry, ...] = ()
    """Messages that were read again: all reads except the first."""
    reordered: tuple[Entry, ...] = ()
    """Messages that were first read after a higher offset of their queue."""
    skipped: tuple[tuple[MessageQueue, range], ...] = ()
    """Offsets between a queue's lowest and highest read offset that were never read, even if nothing was sent there."""

    def __bool__(self) -> bool:
        return any((self.lost, self.strange, self.duplicated, self.reordered, self.skipped))

    def __str__(self) -> str:
        parts: dict[str, Sequence[object]] = {
            "lost": self.lost,
            "strange": self.strange,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "skipped": self.skipped,
        }
        return "; ".join(f"{len(found)} {what}, first {found[0]}" for what, found in parts.items() if found) or "clean"


def check(entries: Iterable[Entry], sent: Sent) -> Findings:
    """Compares what was read, in the order of reading, with everything that was sent and should have been read."""
    seen: dict[MessageQueue, dict[int, object]] = {}
    highest: dict[MessageQueue, int] = {}
    strange, duplicated, reordered = [], [], []
    for entry in entries:
        queue, offset, _ = entry
        known = seen.setdefault(queue, {})
        if sent.get(queue, {}).get(offset) != entry.id:
            strange.append(entry)
        if offset in known:
            duplicated.append(entry)
            continue
        known[offset] = entry.id
        if offset < highest.get(queue, -1):
            reordered.append(entry)
        highest[queue] = max(offset, highest.get(queue, -1))
    lost = [
        Entry(queue, offset, message)
        for queue, messages in sorted(sent.items())
        for offset, message in sorted(messages.items())
        if offset not in seen.get(queue, {})
    ]
    skipped = [(queue, gap) for queue, known in sorted(seen.items()) for gap in gaps(known)]
    return Findings(tuple(lost), tuple(strange), tuple(duplicated), tuple(reordered), tuple(skipped))


def gaps(offsets: Iterable[int]) -> list[range]:
    """Returns what is missing between the lowest and the highest of some offsets."""
    return [range(a + 1, b) for a, b in itertools.pairwise(sorted(set(offsets))) if b > a + 1]


# ---- pipelines ------------------------------------------------------------------------------------------------------

QUICK = ReadOptions(poll_timeout_ms=100, offset_commit_interval_ms=0)
"""Short waits, and a commit with every bundle."""


class Stop(Exception):
    """Ends an unbounded pipeline."""


class Run:
    """One pipeline: what its sink has received, and how it ended. The sink finds it by name, in the same process."""

    named: dict[str, Run] = {}  # noqa: RUF012 (a registry)
    runner: Callable[[], Any] = FnApiRunner
    """Makes the runner. Other runners need a sink that works in other processes, and run pipelines that end."""
    sink: Callable[[str], beam.DoFn]

    def __init__(self, stop_after: int | None, steps: Mapping[int, Callable[[], object]]) -> None:
        self.name = uuid.uuid4().hex
        self.records: list[Record] = []
        self.arrivals: list[float] = []
        """The `time.monotonic` of each record."""
        self.bundles = 0
        """The number of bundles in which the sink received something."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = threading.Event()
        self._stop_after = stop_after
        self._steps = steps
        self._is_aborted = False
        self.named[self.name] = self

    def take(self, record: Record) -> None:
        """Takes a record. Called by the sink."""
        if self._is_aborted:
            raise RuntimeError("aborted by its test")
        self.records.append(record)
        self.arrivals.append(time.monotonic())
        count = len(self.records)
        if count in self._steps:
            self._steps[count]()
        if self._stop_after is not None and count >= self._stop_after:
            raise Stop(f"after {count} records")

    def run(self, transforms: Sequence[Any]) -> None:
        """Runs the pipeline until it ends. Called in its own thread."""
        try:
            pipeline = beam.Pipeline(runner=Run.runner())
            outputs: Any = pipeline
            for transform in transforms:
                outputs |= transform
            outputs | "Sink" >> beam.ParDo(Run.sink(self.name))
            self.result = pipeline.run()
            self.result.wait_until_finish()
        except BaseException as error:  # noqa: BLE001 (the test's own thread reports it)
            self.error = error
        finally:
            self.has_ended.set()

    @property
    def was_stopped(self) -> bool:
        return self.error is not None and f"after {self._stop_after} records" in str(self.error)

    def wait_for(self, count: int, still_s: float = 60) -> None:
        """Waits until the sink has received `count` records."""
        self.wait_until(lambda: len(self.records) >= count, f"{count} records", still_s=still_s)

    def wait_until(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        details: Callable[[], object] = lambda: "",
        still_s: float = 60,
    ) -> None:
        """Waits for a condition while the pipeline runs, and goes on as long as records come."""

        def goes_on() -> bool:
            if self.has_ended.is_set() and not condition():
                raise AssertionError(f"the pipeline ended before: {what}; {told(details)}; {self}") from self.error
            return True

        until(
            condition,
            what,
            progress=lambda: len(self.records),
            alive=[goes_on],
            details=lambda: f"{told(details)}; {self}",
            still_s=still_s,
        )

    def abort(self) -> None:
        """Ends the pipeline, whatever it is doing: its clients are closed, so its next bundle fails."""
        self._is_aborted = True
        close_shared_clients()

    @property
    def offsets(self) -> dict[MessageQueue, list[int]]:
        """Returns the offsets that were read from each queue, in the order of arrival."""
        found: dict[MessageQueue, list[int]] = {}
        for record in list(self.records):
            found.setdefault(record.queue, []).append(record.queue_offset)
        return found

    @property
    def entries(self) -> list[Entry]:
        return [Entry(record.queue, record.queue_offset, record.body) for record in list(self.records)]

    @property
    def counters(self) -> dict[str, int]:
        """Returns our counters of a run that succeeded."""
        found = self.result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["counters"]
        return {counter.key.metric.name: counter.committed for counter in found}

    def __str__(self) -> str:
        counts = ", ".join(f"{len(offsets)} of {queue}" for queue, offsets in sorted(self.offsets.items()))
        bodies = [record.body for record in list(self.records)]
        topics = {queue.topic for queue in self.offsets}
        sent = [sent for lab in Lab.labs for queue, sent in lab.sent.items() if queue.topic in topics]
        left = missing((body for each in sent for body in each.values()), bodies)
        return f"{len(bodies)} records ({counts}), {left}; error {str(self.error)[-2000:]}"


class Sink(beam.DoFn):
    """Passes each record to the `Run` with a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def start_bundle(self) -> None:
        self._is_new = True

    def process(self, element: Record) -> None:
        run = Run.named[self._name]
        if self._is_new:
            self._is_new = False
            run.bundles += 1
        run.take(element)


Run.sink = Sink


@contextmanager
def running(
    *transforms: Any,
    stop_after: int | None = None,
    steps: Mapping[int, Callable[[], object]] | None = None,
    still_s: float = 60,
) -> Iterator[Run]:
    """Runs a pipeline beside the caller's block and waits for its end, as long as records come.

    `stop_after`: the pipeline is unbounded and ends after that many records. `steps`: what the sink does after so many
    records. It runs in the pipeline's own thread, which reads nothing during that time.
    """
    run = Run(stop_after, steps or {})
    thread = threading.Thread(target=run.run, args=(transforms,), daemon=True, name=f"pipeline-{run.name}")
    thread.start()
    try:
        yield run
        until(
            lambda: run.has_ended.wait(0.1),
            "the end of the pipeline",
            progress=lambda: len(run.records),
            details=lambda: run,
            still_s=still_s,
            pause_s=0,
        )
        if stop_after is not None and not run.was_stopped:
            raise AssertionError(f"the sink should have ended the pipeline: {run}") from run.error
    finally:
        if not run.has_ended.is_set():
            run.abort()
        thread.join(at_most(30))
        del Run.named[run.name]
        assert not thread.is_alive(), f"the pipeline cannot be ended: {run}"


def finished(*transforms: Any, steps: Mapping[int, Callable[[], object]] | None = None, still_s: float = 60) -> Run:
    """Runs a bounded pipeline to its successful end."""
    with running(*transforms, steps=steps, still_s=still_s) as run:
        pass
    if run.error is not None:
        raise AssertionError(f"the pipeline failed: {run}") from run.error
    return run


def failure(*transforms: Any) -> str:
    """Runs a pipeline that must fail before it returns anything. Returns the text of the failure."""
    with running(*transforms) as run:
        pass
    assert run.error is not None, f"the pipeline did not fail: {run}"
    assert run.records == [], run
    return str(run.error)


# ---- topics and messages --------------------------------------------------------------------------------------------


class Lab:
    """The topics of a test on a broker, and what was sent to them. Message `n` of a queue has offset `n`."""

    labs: ClassVar[WeakSet[Lab]] = WeakSet()

    def __init__(self, broker: LocalRocketMQ) -> None:
        self.broker = broker
        self.client = RemotingQueueClient(ClientOptions(broker.name_server))
        self.sent: dict[MessageQueue, dict[int, bytes]] = {}
        Lab.labs.add(self)

    def close(self) -> None:
        self.client.close()

    def topic(self, *counts: int, name: str | None = None, body_size: int = 0) -> tuple[MessageQueue, ...]:
        """Creates a topic with a queue for each count, and that many messages in the queue."""
        name = name or f"read-{uuid.uuid4().hex[:12]}"
        self.broker.create_topic(name, queues=len(counts))
        queues = tuple(MessageQueue(name, self.broker.name, number) for number in range(len(counts)))
        for queue, count in zip(queues, counts, strict=True):
            self.send(queue, count, body_size=body_size)
        return queues

    def send(
        self,
        queue: MessageQueue,
        count: int,
        *,
        body_size: int = 0,
        make: Callable[[int], dict[str, Any]] | None = None,
    ) -> None:
        """Appends messages. Returns when they can be read. `make` returns further fields by offset."""
        sent = self.sent.setdefault(queue, {})
        begin, end = len(sent), len(sent) + count
        for offset in range(begin, end):
            sent[offset] = f"{queue.topic}/{queue.queue_id}/{offset}".encode().ljust(body_size, b".")
        send_all(self.broker.broker, queue, (Message(sent[n], **(make(n) if make else {})) for n in range(begin, end)))
        # A broker acknowledges before it dispatches. A message counts for the end of the queue only after that.
        have = partial(self.client.max_offset, queue)
        until(lambda: have() >= end, f"{queue} to have {end} messages", progress=have, details=have)

    def sent_to(self, *queues: MessageQueue) -> Sent:
        """Returns everything that was sent to some queues."""
        return {queue: self.sent.get(queue, {}) for queue in queues}

    def read(self, topic: Any, **arguments: Any) -> ReadFromRocketMQ:
        """Returns an unbounded read from the start, unless the arguments differ."""
        defaults: dict[str, Any] = {
            "name_server": self.broker.name_server,
            "start": StartFrom.earliest(),
            "options": QUICK,
        }
        return ReadFromRocketMQ(topic, **defaults | arguments)

    def store_time(self, queue: MessageQueue, offset: int) -> int:
        """Returns when the broker stored a message, by the broker's clock, in Unix milliseconds."""
        return records_of(read_to(self.client, queue, offset, offset + 1))[0].store_timestamp_ms

    def committed(self, group: str, *queues: MessageQueue) -> list[int | None]:
        return [self.client.committed_offset(group, queue) for queue in queues]

    def until_committed(self, run: Run, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        now = partial(self.committed, group, *offsets)
        run.wait_until(lambda: now() == [*offsets.values()], f"{group} to commit {offsets}", details=now)


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
