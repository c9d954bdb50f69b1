"""Reads of a real broker that dies, hangs or forgets: nothing lost, nothing twice, order kept, gaps by policy."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from rmqio import MessageQueue, ReadOptions, StartFrom, StopAt
from rmqio.client.connection import Connection
from rmqio.local import LocalRocketMQ
from rmqio.local.config import Config
from rmqio.transforms.reading.in_process import ReadSubscriptionFn
from rmqio.wire.command import Command
from tests.helpers.ledgers.ledger import QUICK, Entry, Lab, Run, check, failure, finished, new_group, running
from tests.helpers.waiting import at_most, settled, until
from tests.integration.reading.test_endless import bundles_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DELETE_EXPIRED_COMMITLOG = 329


@pytest.fixture(scope="module", autouse=True)
def forgetful_lab() -> Iterator[Lab]:
    """A broker with small files that deletes the old ones when it is told to.

    It begins to clean up no sooner than 60 s after its start: hence it starts before the first test of this module.
    """
    config: Config = {
        "mappedFileSizeCommitLog": 1048576,
        "mappedFileSizeConsumeQueue": 20000,
        "maxMessageSize": 262144,
        "fileReservedTime": 0,
        "deleteWhen": f"{(time.localtime().tm_hour + 12) % 24:02d}",
        "cleanResourceInterval": 1000,
        "deleteCommitLogFilesInterval": 1,
        "deleteConsumeQueueFilesInterval": 1,
    }
    with LocalRocketMQ(name="forgetful", broker_config=config, broker_heap_mb=512) as broker:
        with contextlib.closing(Lab(broker)) as lab:
            yield lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with LocalRocketMQ(name="mortal", broker_heap_mb=512) as broker:
        with contextlib.closing(Lab(broker)) as lab:
            yield lab


class Fault:
    """A fault of the broker that happens in the sink, at a count, and is repaired some seconds later, in a thread."""

    def __init__(self, strike: Callable[[], object], repair: Callable[[], object], seconds: float) -> None:
        self._strike, self._repair, self._seconds = strike, repair, seconds
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.ended_at = 0.0
        """When the repair began. It may have served the read long before it is known to be complete."""

    def __call__(self) -> None:
        self._strike()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(self._seconds)  # the sink gets what was read ahead
        self.ended_at = time.monotonic()
        try:
            self._repair()
        except BaseException as error:  # noqa: BLE001 (told by the test's own thread)
            self.error = error

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(at_most(120))
            assert not self._thread.is_alive()


def kill_and_restart(broker: LocalRocketMQ) -> Fault:
    return Fault(broker.kill, broker.restart, 2)


def until_on_disk(lab: Lab, group: str, queues: tuple[MessageQueue, ...]) -> None:
    """Waits until a kill makes the broker forget no commit: it keeps them in memory for 5 s, the first for 10."""
    for queue, offset in zip(queues, lab.committed(group, *queues), strict=True):
        kept = re.compile(rf'"{re.escape(f"{queue.topic}@{group}")}":\s*{{[^}}]*\b{queue.queue_id}:{offset}\b')

        def is_kept(kept: re.Pattern[str] = kept) -> bool:
            files = lab.broker.data_dir.rglob("consumerOffset.json")  # there is none before the first time
            return any(kept.search(file.read_text()) for file in files)

        if offset is not None:
            until(is_kept, f"the commit of {offset} of {queue} on disk")


def pause_and_resume(broker: LocalRocketMQ, seconds: float) -> Fault:
    return Fault(broker.pause, broker.resume, seconds)


def assert_survived(run: Run, lab: Lab, queues: tuple[MessageQueue, ...], fault: Fault) -> None:
    """Much came only after the fault, however fast the read is, and all came once and in order."""
    assert fault.error is None
    total = sum(len(lab.sent[queue]) for queue in queues)
    late = sum(arrival > fault.ended_at for arrival in run.arrivals)
    assert late >= 0.1 * total, f"only {late} of {total} came after the fault: it did not interrupt the read"
    findings = check(run.entries, lab.sent_to(*queues))
    assert not findings, str(findings)


# Impatient where it asks something, so that a hanging broker is noticed.
IMPATIENT = dataclasses.replace(QUICK, request_timeout_ms=1_000)


@pytest.mark.parametrize("fault", ["killed", "paused"])
def test_a_bounded_read_rides_out_a_broker_that_is(lab: Lab, fault: str) -> None:
    queues = lab.topic(*[6_000] * 4, body_size=100)
    group = new_group()

    def kill() -> None:
        until_on_disk(lab, group, queues)  # two queues are at their ends by now, and nobody commits them again
        lab.broker.kill()

    struck = Fault(kill, lab.broker.restart, 2) if fault == "killed" else pause_and_resume(lab.broker, 8)
    read = lab.read(queues[0].topic, consumer_group=group, stop=StopAt.latest(), options=IMPATIENT)
    try:
        run = finished(read, steps={12_000: struck}, still_s=90)
    finally:
        struck.join()
    assert_survived(run, lab, queues, struck)
    assert run.counters.get("offsets_skipped", 0) == 0
    assert lab.committed(group, *queues) == [6_000] * 4


@pytest.mark.parametrize(("fault", "discovery_interval_ms"), [("killed", 500), ("killed", 0), ("paused", 500)])
def test_an_endless_read_rides_out_a_broker_that_is(lab: Lab, fault: str, discovery_interval_ms: int) -> None:
    queues = lab.topic(*[6_000] * 4, body_size=100)
    group = new_group()
    struck = kill_and_restart(lab.broker) if fault == "killed" else pause_and_resume(lab.broker, 8)
    options = dataclasses.replace(IMPATIENT, discovery_interval_ms=discovery_interval_ms)
    read = lab.read(queues[0].topic, consumer_group=group, options=options)
    with running(read, stop_after=24_101, steps={12_000: struck}, still_s=90) as run:
        try:
            run.wait_for(24_000, still_s=90)
            for queue in queues:
                lab.send(queue, 25)
            run.wait_for(24_100)

            def committed() -> list[int | None]:
                return lab.committed(group, *queues)

            run.wait_until(lambda: committed() == [6_025] * 4, "all to be committed", details=committed)
            lab.send(queues[0], 1)
        finally:
            struck.join()
    assert_survived(run, lab, queues, struck)


def test_an_idle_endless_read_rides_out_a_broker_that_is_killed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    q0, q1 = lab.topic(10, 0)
    begun = bundles_of(monkeypatch, ReadSubscriptionFn)
    with running(lab.read(q0.topic, options=IMPATIENT), stop_after=16, still_s=90) as run:
        run.wait_for(10)
        for act in (lab.broker.kill, lab.broker.restart):
            before = len(begun)
            run.wait_until(lambda before=before: len(begun) > before + 20, "bundles in which nothing comes")  # type: ignore[misc]
            act()
        lab.send(q0, 5)
        lab.send(q1, 1)
    assert not check(run.entries, lab.sent_to(q0, q1))


# ---- retention ------------------------------------------------------------------------------------------------------

COUNT = 6_000
"""Messages of 1 KB each: six files or so, of which the newest is kept."""


@dataclasses.dataclass
class Loss:
    """The runs of reads of a queue whose first offsets were deleted while the reads stood before them."""

    queue: MessageQueue
    minimum: int
    runs: dict[str, Run]


@pytest.fixture(scope="module")
def loss(forgetful_lab: Lab) -> Loss:
    lab = forgetful_lab
    (queue,) = lab.topic(0)
    for _ in range(COUNT // 200):  # a batch must not be larger than a message
        lab.send(queue, 200, body_size=1_000)
    deleted = threading.Event()

    def wait_for_loss() -> None:
        # In the pipeline's own thread: it reads nothing meanwhile.
        assert deleted.wait(at_most(230)), "the test's own thread has failed"

    def read(policy: Any) -> Any:
        # Few answers on their way, so that the loss is not read ahead of.
        options = ReadOptions(poll_timeout_ms=100, pull_depth=2, on_offset_out_of_range=policy)
        return lab.read(queue.topic, stop=StopAt.latest(), options=options)

    with contextlib.ExitStack() as stack:
        runs = {
            policy: stack.enter_context(running(read(policy), steps={100: wait_for_loss}))
            for policy in ("fail", "earliest", "latest")
        }
        try:
            for run in runs.values():
                run.wait_for(100)
            connection = Connection(lab.broker.broker)
            connection.request(Command(DELETE_EXPIRED_COMMITLOG, {}), 10_000)
            connection.close()
            until(lambda: lab.client.min_offset(queue) > COUNT // 2, "the broker to delete", still_s=200)
            minimum = settled(lambda: lab.client.min_offset(queue), "the least offset")
        finally:
            deleted.set()
    return Loss(queue, minimum, runs)


def assert_gap(loss: Loss, run: Run, lab: Lab, end: int, rest: int) -> None:
    """The run read what was on its way, then from `rest` to the end, and the gap between them is counted."""
    offsets = run.offsets[loss.queue]
    head = [offset for offset in offsets if offset < end]
    assert 100 <= len(head) < loss.minimum, len(head)
    assert offsets == [*range(len(head)), *range(rest, COUNT)]
    assert run.counters["offsets_skipped"] == rest - len(head)
    assert all(lab.sent[loss.queue][entry.offset] == entry.id for entry in run.entries)


def test_a_loss_while_reading_fails_the_pipeline(forgetful_lab: Lab, loss: Loss) -> None:
    run = loss.runs["fail"]
    offsets = run.offsets[loss.queue]
    assert 100 <= len(offsets) < loss.minimum
    assert offsets == list(range(len(offsets)))
    text = f"offset {len(offsets)} is not available; the broker holds [{loss.minimum}, {COUNT})"
    assert text in str(run.error)
    assert f"{loss.minimum - len(offsets):,} messages were deleted by retention" in str(run.error)


def test_a_loss_while_reading_is_jumped_over_to_the_earliest_and_counted(forgetful_lab: Lab, loss: Loss) -> None:
    run = loss.runs["earliest"]
    assert run.error is None
    assert_gap(loss, run, forgetful_lab, loss.minimum, loss.minimum)


def test_a_loss_while_reading_is_jumped_over_to_the_latest_and_counted(forgetful_lab: Lab, loss: Loss) -> None:
    run = loss.runs["latest"]
    assert run.error is None
    assert_gap(loss, run, forgetful_lab, COUNT, COUNT)


def test_a_start_that_was_deleted_follows_the_policy(forgetful_lab: Lab, loss: Loss) -> None:
    lab, queue, minimum = forgetful_lab, loss.queue, loss.minimum
    group = new_group()
    lab.client.commit_offset(group, queue, 7)
    begins: dict[Literal["earliest", "latest"], int] = {"earliest": minimum, "latest": COUNT}
    for start in (StartFrom.specific_offsets({queue: 7}), StartFrom.group_offsets("error")):
        reads = {"consumer_group": group, "start": start, "stop": StopAt.latest()}
        text = failure(lab.read(queue.topic, **reads))
        assert f"offset 7 is not available; the broker holds [{minimum}, {COUNT})" in text
        for policy, begin in begins.items():
            options = dataclasses.replace(QUICK, on_offset_out_of_range=policy, commit_offsets=False)
            run = finished(lab.read(queue.topic, **reads, options=options))
            assert run.offsets.get(queue, []) == list(range(begin, COUNT)), policy


def test_earliest_and_an_early_time_are_what_is_still_there(forgetful_lab: Lab, loss: Loss) -> None:
    lab, queue, minimum = forgetful_lab, loss.queue, loss.minimum
    kept = [Entry(queue, offset, lab.sent[queue][offset]) for offset in range(minimum, COUNT)]
    for start in (StartFrom.earliest(), StartFrom.timestamp(0), StartFrom.group_offsets("earliest")):
        run = finished(lab.read(queue.topic, start=start, consumer_group=new_group(), stop=StopAt.latest()))
        assert run.entries == kept, start
        assert run.counters.get("offsets_skipped", 0) == 0
