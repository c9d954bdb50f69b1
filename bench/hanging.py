"""How long a healthy broker's messages take through a stream on Spark while the other broker hangs, or is killed.

python -m bench.hanging [--seconds 60] [--quick]

It starts a name server and two brokers, and `tests/helpers/copying.py` with `--streaming`, which copies a topic on both
to one on the healthy broker. Ten messages a second go to each queue, to both brokers, so that a range of the other one
is planned when it goes away. A message's latency is from its store time to its copy's, by one machine's clock. Both
brokers up, then one under SIGSTOP, then up again, then one killed; then all must have been copied once, else the exit
status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.lab import say
from rmqio.client.sending.producer import RemotingProducer
from rmqio.errors import RmqioError
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.pipelines.check import read_topic
from tests.helpers.away import CONFIG, GOES, STAYS, Topic, find, lose
from tests.helpers.cluster import Cluster
from tests.helpers.delivery import SPARK_STREAMING
from tests.helpers.jobs import Job, started

_EVERY_S: Final = 0.1
_WARM_UP_S: Final = 15.0
_BACK_S: Final = 10.0


class Sender(threading.Thread):
    """Sends one message to each queue of a broker, again and again; a broker that is away holds it up, not others."""

    def __init__(self, cluster: Cluster, topic: Topic, broker: str) -> None:
        super().__init__(daemon=True)
        options = ClientOptions(cluster.name_server, max_retries=0)
        self._producer = RemotingProducer(options, f"hanging-{broker}")
        self._queues = topic.of(broker)
        self._topic = topic.name
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            for queue in self._queues:
                with contextlib.suppress(RmqioError):
                    self._producer.send(Message(b"m", topic=self._topic), queue)

    def stop(self) -> None:
        self._is_over.set()
        self.join(30)
        self._producer.close()


@contextlib.contextmanager
def sending(cluster: Cluster, topic: Topic) -> Iterator[None]:
    senders = [Sender(cluster, topic, broker) for broker in (STAYS, GOES)]
    for sender in senders:
        sender.start()
    try:
        yield
    finally:
        for sender in senders:
            sender.stop()


def measure(seconds: float, folder: Path) -> tuple[dict[str, list[int]], str | None]:
    """Milliseconds by phase, and what is wrong with the copies."""
    phases: list[tuple[str, float, float]] = []

    def phase(name: str, length_s: float) -> None:
        began = time.time()
        time.sleep(length_s)
        phases.append((name, began * 1000, time.time() * 1000))
        say(f"{name}: over")

    with Cluster(brokers=(STAYS, GOES), config=CONFIG) as cluster, contextlib.closing(Topic(cluster)) as topic:
        flags = [*SPARK_STREAMING.with_workers(2), "--start=earliest", f"--checkpoint_dir={folder / 'checkpoint'}"]
        topic.send(topic.queues, 10)
        with started(Job(topic.command(flags), folder)) as job:
            job.wait_until(lambda: bool(topic.copied()), "the first copies")
            with sending(cluster, topic):
                time.sleep(_WARM_UP_S)
                phase("both up", seconds)
                cluster.brokers[GOES].pause()
                phase("one under SIGSTOP", seconds)
                cluster.brokers[GOES].resume()
                time.sleep(_BACK_S)
                lose(cluster)
                phase("one killed", seconds)
                find(cluster)
                time.sleep(_BACK_S)
            sent = {(record.broker, record.queue_id, record.queue_offset): record.store_timestamp_ms
                    for record in read_topic(topic.client, topic.name)}  # fmt: skip
            job.wait_until(lambda: topic.copied().keys() >= sent.keys(), "all copies")
            problem = None if all(count == 1 for count in topic.copied().values()) else "some were copied twice"
            copied = topic.copy_times()
            job.interrupt()
    found: dict[str, list[int]] = {name: [] for name, _, _ in phases}
    for place, stored_ms in sent.items():
        for name, began, ended in phases:
            if place[0] == STAYS and began <= stored_ms < ended:
                found[name].append(copied[place] - stored_ms)
    return found, problem


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase")
    parser.add_argument("--quick", action="store_true", help="shows that it works; its figures mean nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, problem = measure(10.0 if arguments.quick else arguments.seconds, Path(folder))
    print("| the other broker | messages | median ms | 99 % ms | worst ms |\n|---|--:|--:|--:|--:|")
    for name, values in found.items():
        values.sort()
        row = (len(values), statistics.median(values), values[int(0.99 * len(values))], values[-1])
        print(f"| {name} | " + " | ".join(f"{value:,.0f}" for value in row) + " |")
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
