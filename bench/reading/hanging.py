"""Measures the latency of a healthy broker's messages in a stream on Spark while the other broker hangs or is dead.

python -m bench.reading.hanging [--seconds 60] [--quick]

It starts a name server, two brokers and `tests/helpers/pipelines/copying.py` with `--streaming`, which copies a topic
of both brokers to a topic of the healthy one. Each queue of both brokers gets ten messages per second, so a range of
the other broker is planned when it goes away. The latency of a message is the time from its store time to that of its
copy, by one machine's clock. At first both brokers are up. Then one is under SIGSTOP, is up again, and is killed. At
the end, every message must have been copied once; otherwise, the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.common.report import say
from tests.helpers.ledgers.delivery import SPARK_STREAMING
from tests.helpers.servers.away import CONFIG, GOES, STAYS, Topic, find, lose, sending
from tests.helpers.servers.cluster import Cluster
from tests.helpers.servers.jobs import Job, started

_WARM_UP_S: Final = 15.0
_BACK_S: Final = 10.0


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
            sent = topic.stored()
            job.wait_until(lambda: topic.copied().keys() >= sent.keys(), "all copies")
            problem = (
                None if all(count == 1 for count in topic.copied().values()) else "some messages were copied twice"
            )
            copied = topic.copy_times()
            job.interrupt()
    found: dict[str, list[int]] = {name: [] for name, _, _ in phases}
    for place, stored_ms in sent.items():
        for name, began, ended in phases:
            if place[0] == STAYS and began <= stored_ms < ended:
                found[name].append(copied[place] - stored_ms)
    return found, problem


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reading.hanging",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each phase; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
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
