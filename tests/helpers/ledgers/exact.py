"""Runs `province.py --exactly_once` on a broker that may be killed, and counts the results with a Java consumer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from tests.helpers.addresses import addresses
from tests.helpers.check import read_topic
from tests.helpers.ledgers.delivery import Mode
from tests.helpers.peers.interop import JavaClient
from tests.helpers.programs import program
from tests.helpers.servers.jobs import Job
from tests.helpers.waiting import at_most, missing

QUEUES = 4


class ExactBench:
    """The topics of one test, on a broker that the test may kill."""

    def __init__(self, broker: LocalRocketMQ, folder: Path, count: int) -> None:
        """`count`: the number of addresses that the job will process."""
        name = uuid.uuid4().hex[:8]
        self.broker, self.folder, self.count, self.sent = broker, folder, count, 0
        self.source, self.sink, self.group = f"src-{name}", f"dst-{name}", f"group-{name}"
        for topic in (self.source, self.sink):
            broker.create_topic(topic, queues=QUEUES)
        factory = RemotingClientFactory(ClientOptions(broker.name_server))
        self.client, self._producer = factory.queue_client(), factory.producer("test")
        self._bodies = [json.dumps(address).encode() for address in addresses(count)]
        self.logs: list[Path] = []

    def send(self, count: int) -> None:
        """Sends the next `count` addresses, to all queues in turn."""
        some = self._bodies[self.sent : self.sent + count]
        for number, queue in enumerate(self._producer.queues(self.source)):
            mine = some[number::QUEUES]
            for begin in range(0, len(mine), 500):
                self._producer.send_batch([Message(body) for body in mine[begin : begin + 500]], queue)
        self.sent += len(some)

    def job(self, mode: Mode, *more: str, exactly_once: bool = True) -> Job:
        """Starts a job that continues where the previous one ended."""
        arguments = [
            *(program("province"), f"--name_server={self.broker.name_server}"),
            *(f"--source_topic={self.source}", f"--sink_topic={self.sink}", "--start=earliest"),
            *(
                f"--consumer_group={self.group}",
                f"--checkpoint_dir={self.folder / 'checkpoint'}",
                *mode.with_workers(2),
            ),
            *([f"--exactly_once={self.group}-sink"] if exactly_once else []),
        ]
        job = Job([sys.executable, *arguments, *more], self.folder)
        self.logs.append(job.log)
        return job

    @property
    def written(self) -> int:
        """The number of messages in the sink. While the broker is away, the last known number."""
        with suppress(Exception):
            self._written = sum(self.client.max_offset(queue) for queue in self.client.queues(self.sink))
        return self._written

    _written = 0

    def uncommitted(self) -> dict[int, tuple[int | None, int]]:
        """Returns what the group has committed, and the end, of queues of which it has not committed all."""
        client = self.client
        ends = {queue: client.max_offset(queue) for queue in client.queues(self.source)}
        found = {queue: client.committed_offset(self.group, queue) for queue in ends}
        return {queue.queue_id: (found[queue], end) for queue, end in ends.items() if found[queue] != end}

    def wait_for(self, job: Job, count: float) -> None:
        """Waits until `count` messages are in the sink."""
        job.wait_until(
            lambda: self.written >= count,
            f"{count:,.0f} in the sink",
            progress=lambda: self.written,
            details=self._missing,
            still_s=300,
        )

    def wait_for_commits(self, job: Job) -> None:
        """Waits until the group has committed all: the job reads nothing again."""
        job.wait_until(lambda: not self.uncommitted(), "all to be committed", progress=self.uncommitted)

    def _missing(self) -> str:
        keys = (record.keys[0] for record in read_topic(self.client, self.sink))
        return missing((str(address["id"]) for address in addresses(self.sent)), keys)

    def kill_broker(self) -> None:
        """Kills the broker and starts it again."""
        self.broker.kill()
        time.sleep(1)
        self.broker.restart()

    def run_through(self, mode: Mode, kills: Sequence[str], **others: Callable[[], object]) -> None:
        """Runs the job until everything is written and committed: then nothing is left of which a copy could come.

        Makes each kill after some new writes.

        A killed "driver" is started again here. A "worker" and the "broker" are replaced by themselves. `others` are
        functions that kill something else.
        """
        assert mode.kill is not None
        part = self.count // len(kills)
        job = self.job(mode)
        try:
            for name in kills:
                self.send(part)
                self.wait_for(job, self.sent - 0.9 * part)
                print(f"{name} killed at {self.written:,} of {self.sent:,}", flush=True)
                if name == "worker":
                    mode.kill(job)
                elif name == "broker":
                    self.kill_broker()
                elif name in others:
                    others[name]()
                if name == "driver" or (name in others and not self._goes_on(job)):
                    if job.process.poll() is None:
                        job.kill()
                    job = self.job(mode)
            self.send(self.count - self.sent)
            self.wait_for(job, self.count)
            self.wait_for_commits(job)
            assert job.interrupt() == 130, job.log.read_text()[-4000:]
        finally:
            if job.process.poll() is None:
                job.kill()

    @staticmethod
    def _goes_on(job: Job) -> bool:
        with suppress(subprocess.TimeoutExpired):
            job.process.wait(at_most(15))
        return job.process.poll() is None

    def counted(self, java: JavaClient) -> tuple[int, int]:
        """Returns (lost, copies) as a Java consumer sees them."""
        found = java.ask("count", topic=self.sink)
        ids = Counter({key: int(number) for key, number in found["keys"].items()})
        assert set(ids) <= {str(address["id"]) for address in addresses(self.count)}
        return self.count - len(ids), ids.total() - len(ids)

    def close(self) -> None:
        self.client.close()
        self._producer.close()
