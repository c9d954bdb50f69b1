"""A ledger of what a read gave, checked against what was sent; and pipelines that keep one while they run.

The ledger is pure. `Lab` and `Run` are for tests of the read on a real broker: topics with known messages, and
pipelines in a thread of their own, which end by themselves, by a `Stop` from their sink, or, if they hang, by force.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom
from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue, Record
from rmqio.options import ClientOptions
from rmqio.transforms.shared import close_shared_clients
from tests.helpers.raw_send import read_to, records_of, send_all

# ---- the ledger -----------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One message as it was read."""

    queue: MessageQueue
    offset: int
    id: object


Sent = Mapping[MessageQueue, Mapping[int, object]]
"""Id by offset, by queue."""


@dataclass(frozen=True)
class Findings:
    """What is wrong with a ledger. False when nothing is."""

    lost: tuple[Entry, ...] = ()
    """Sent, and never read."""
    strange: tuple[Entry, ...] = ()
    """Read, and never sent: nothing was sent there, or another id."""
    duplicated: tuple[Entry, ...] = ()
    """Read again: every reading but the first."""
    reordered: tuple[Entry, ...] = ()
    """Read for the first time behind a higher offset of its queue."""
    skipped: tuple[tuple[MessageQueue, range], ...] = ()
    """Offsets between the lowest and the highest read of a queue that were never read, whether sent or not."""

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
    """Compare what was read, in the order in which it was read, with all that was sent and should have been read."""
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
    """What is missing between the lowest and the highest of some offsets."""
    return [range(a + 1, b) for a, b in itertools.pairwise(sorted(set(offsets))) if b > a + 1]


# ---- pipelines ------------------------------------------------------------------------------------------------------

QUICK = ReadOptions(poll_timeout_ms=100, offset_commit_interval_ms=0)
"""Short waits, and a commit with every bundle."""


class Stop(Exception):
    """Ends an endless pipeline."""


class Run:
    """One pipeline: what its sink has got so far, and how it ended. The sink finds it by name, in the same process."""

    named: dict[str, Run] = {}  # noqa: RUF012 (a registry)
    runner: Callable[[], Any] = FnApiRunner
    """Other runners need a sink that works in other processes; they run pipelines that end."""
    sink: Callable[[str], beam.DoFn]

    def __init__(self, stop_after: int | None, steps: Mapping[int, Callable[[], object]]) -> None:
        self.name = uuid.uuid4().hex
        self.records: list[Record] = []
        self.arrivals: list[float] = []
        """`time.monotonic` of each record."""
        self.bundles = 0
        """Bundles that the sink was given something in."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = threading.Event()
        self._stop_after = stop_after
        self._steps = steps
        self._is_aborted = False
        self.named[self.name] = self

    def take(self, record: Record) -> None:
        """Called by the sink."""
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
        """The pipeline, to its end; called in a thread of its own."""
        try:
            pipeline = beam.Pipeline(runner=Run.runner())
            outputs: Any = pipeline
            for transform in transforms:
                outputs |= transform
            outputs | "Sink" >> beam.ParDo(Run.sink(self.name))
            self.result = pipeline.run()
            self.result.wait_until_finish()
        except BaseException as error:  # noqa: BLE001 (told by the test's own thread)
            self.error = error
        finally:
            self.has_ended.set()

    @property
    def was_stopped(self) -> bool:
        return self.error is not None and f"after {self._stop_after} records" in str(self.error)

    def wait_for(self, count: int, timeout_s: float = 30) -> None:
        """Wait until the sink has got so many records."""
        self.wait_until(lambda: len(self.records) >= count, f"{count} records", timeout_s)

    def wait_until(
        self,
        condition: Callable[[], bool],
        what: str,
        timeout_s: float = 30,
        *,
        seen: Callable[[], object] = lambda: "",
    ) -> None:
        """Wait for something that happens while the pipeline runs. `seen`: for the message, when it does not."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}; {seen()}; {self}"
            if self.has_ended.is_set() and not condition():
                raise AssertionError(f"it ended before: {what}; {self}") from self.error
            time.sleep(0.005)

    def abort(self) -> None:
        """End it whatever it does: closed clients fail its next bundle."""
        self._is_aborted = True
        close_shared_clients()

    @property
    def offsets(self) -> dict[MessageQueue, list[int]]:
        """What has been read of each queue, in the order in which it came."""
        found: dict[MessageQueue, list[int]] = {}
        for record in list(self.records):
            found.setdefault(record.queue, []).append(record.queue_offset)
        return found

    @property
    def entries(self) -> list[Entry]:
        return [Entry(record.queue, record.queue_offset, record.body) for record in list(self.records)]

    @property
    def counters(self) -> dict[str, int]:
        """Our metrics; of a run that has ended well."""
        found = self.result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["counters"]
        return {counter.key.metric.name: counter.committed for counter in found}

    def __str__(self) -> str:
        counts = ", ".join(f"{len(offsets)} of {queue}" for queue, offsets in sorted(self.offsets.items()))
        return f"{len(self.records)} records ({counts}), error {str(self.error)[-2000:]}"


class Sink(beam.DoFn):
    """Hands each record to the `Run` of a name."""

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
    timeout_s: float = 60,
) -> Iterator[Run]:
    """A pipeline beside the caller's block, which it outlives until it ends; `AssertionError` if it never does.

    `stop_after`: it is endless and ends with that many records. `steps`: what the sink does after as many records,
    in the pipeline's own thread, which reads nothing meanwhile.
    """
    run = Run(stop_after, steps or {})
    thread = threading.Thread(target=run.run, args=(transforms,), daemon=True, name=f"pipeline-{run.name}")
    thread.start()
    try:
        yield run
        assert run.has_ended.wait(timeout_s), f"has not ended within {timeout_s} s: {run}"
        if stop_after is not None and not run.was_stopped:
            raise AssertionError(f"it was to end by its sink: {run}") from run.error
    finally:
        if not run.has_ended.is_set():
            run.abort()
        thread.join(30)
        del Run.named[run.name]
        assert not thread.is_alive(), f"cannot be ended: {run}"


def finished(*transforms: Any, steps: Mapping[int, Callable[[], object]] | None = None, timeout_s: float = 60) -> Run:
    """A bounded pipeline, after it has ended well."""
    with running(*transforms, steps=steps, timeout_s=timeout_s) as run:
        pass
    if run.error is not None:
        raise AssertionError(f"it failed: {run}") from run.error
    return run


def failure(*transforms: Any, timeout_s: float = 60) -> str:
    """The text with which a pipeline fails that is to fail, and to give nothing before."""
    with running(*transforms, timeout_s=timeout_s) as run:
        pass
    assert run.error is not None, f"it did not fail: {run}"
    assert run.records == [], run
    return str(run.error)


# ---- topics and messages --------------------------------------------------------------------------------------------


class Lab:
    """Topics of a test's own on a broker, and what was sent to them. Message `n` of a queue has offset `n`."""

    def __init__(self, broker: LocalRocketMQ) -> None:
        self.broker = broker
        self.client = RemotingQueueClient(ClientOptions(broker.name_server))
        self.sent: dict[MessageQueue, dict[int, bytes]] = {}

    def close(self) -> None:
        self.client.close()

    def topic(self, *counts: int, name: str | None = None, body_size: int = 0) -> tuple[MessageQueue, ...]:
        """A topic with a queue per count, that many messages in each."""
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
        """Messages behind those that are there; returns when they can be read. `make`: further fields by offset."""
        sent = self.sent.setdefault(queue, {})
        begin, end = len(sent), len(sent) + count
        for offset in range(begin, end):
            sent[offset] = f"{queue.topic}/{queue.queue_id}/{offset}".encode().ljust(body_size, b".")
        send_all(self.broker.broker, queue, (Message(sent[n], **(make(n) if make else {})) for n in range(begin, end)))
        # A broker acknowledges before it dispatches: only then a message is there for who asks where the end is.
        wait_until(lambda: self.client.max_offset(queue) >= end, f"{queue} to have {end} messages")

    def sent_to(self, *queues: MessageQueue) -> Sent:
        """All that was sent to some queues."""
        return {queue: self.sent.get(queue, {}) for queue in queues}

    def read(self, topic: Any, **arguments: Any) -> ReadFromRocketMQ:
        """An endless read from the start, unless told otherwise."""
        defaults: dict[str, Any] = {
            "name_server": self.broker.name_server,
            "start": StartFrom.earliest(),
            "options": QUICK,
        }
        return ReadFromRocketMQ(topic, **defaults | arguments)

    def store_time(self, queue: MessageQueue, offset: int) -> int:
        """When the broker stored a message, by its own clock, in Unix milliseconds."""
        return records_of(read_to(self.client, queue, offset, offset + 1))[0].store_timestamp_ms

    def committed(self, group: str, *queues: MessageQueue) -> list[int | None]:
        return [self.client.committed_offset(group, queue) for queue in queues]


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.005)
