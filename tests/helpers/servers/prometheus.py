"""Processes that export metrics at one address, and scrapes of that address over HTTP."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rmqio.prometheus.values import process_name
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most, until

WORKER = """
import sys
from rmqio import prometheus, telemetry
prometheus.export._RETRY_S = 0.2  # so that a test need not wait for ten seconds
prometheus.start_from_environment()
for line in sys.stdin:
    name, labels, value = line.split()
    telemetry.record(name, tuple(labels.split("/")) if labels != "-" else (), float(value))
    print("done", flush=True)
"""
QUEUE = "t/broker-a/0"
Sample = tuple[str, tuple[str, ...]]


class Worker:
    """A process that exports the values that it receives."""

    def __init__(self, environment: dict[str, str], program: str = WORKER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def record(self, name: str, labels: str, value: float) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, labels, value, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n", self.process.communicate()[1]

    def kill(self) -> str:
        """Kills the process and returns its stderr."""
        self.process.kill()
        return self.process.communicate(timeout=at_most(30))[1]


class Machine:
    """Processes that share an address."""

    def __init__(self, folder: Path) -> None:
        self.port = reserved_port()
        self.folder = folder
        self.environment = os.environ | {"RMQIO_PROMETHEUS": f"127.0.0.1:{self.port}", "TMPDIR": str(folder)}
        self.environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self.workers: list[Worker] = []

    def worker(self, program: str = WORKER) -> Worker:
        self.workers.append(Worker(self.environment, program))
        return self.workers[-1]

    def scrape(self) -> dict[Sample, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=at_most(10)) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }

    def scrape_until(self, condition: Callable[[dict[Sample, float]], bool]) -> dict[Sample, float]:
        """Returns the first scrape that meets the condition. While no process has the port, there is no scrape."""
        found: dict[Sample, float] = {}

        def is_met() -> bool:
            nonlocal found
            with contextlib.suppress(OSError):
                found = self.scrape()
                return condition(found)
            return False

        until(is_met, "a scrape that meets the condition", details=lambda: found)
        return found

    def server_of(self, workers: list[Worker]) -> Worker:
        """Returns the worker that has the port. It says so shortly after it begins to serve."""

        def said() -> list[str]:
            return [file.read_text() for file in self.folder.glob("rmqio-prometheus-*/server")]

        def found() -> list[Worker]:
            names = said()
            return [each for each in workers if names == [process_name(each.process.pid)]]

        return until(found, "a worker that serves", details=said)[0]


def queue(labels: str = QUEUE) -> tuple[str, ...]:
    """Returns a queue's labels in Prometheus' order."""
    topic, broker, number = labels.split("/")
    return broker, number, topic
