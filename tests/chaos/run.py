"""One run: the cluster, its producers and pipelines, the faults, the drain, and the audit."""

from __future__ import annotations

import collections
import itertools
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from rmqio.client.client import RemotingQueueClient
from rmqio.options import ClientOptions
from rmqio.security import Security
from tests.chaos import faults
from tests.chaos.audit import Audit, audit_stored
from tests.chaos.subject import SOURCE, Records, Setting, Subject, ids_of
from tests.chaos.writers import Kind, Writer
from tests.helpers.check import read_topic
from tests.helpers.client.proxy import Proxy
from tests.helpers.servers.cluster import Cluster, Server

_WRITERS: Final[tuple[tuple[str, Kind, int, float], ...]] = (
    ("single", "single", 1, 0.02),
    ("batch", "batch", 30, 0.1),
    ("other", "batch", 5, 0.1),
    ("ordered", "ordered", 20, 0.2),
)
"""Name, kind, messages of a batch, pause in seconds."""
_MOST_QUEUES: Final = 6
_PROGRESS_S: Final = 10.0
_WRITERS_STOP_S: Final = 90.0
Print = Callable[[str], object]


@dataclass
class Report:
    """The findings of a run."""

    seed: int
    audits: list[Audit] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.errors and not any(self.audits)

    def __str__(self) -> str:
        width = max(map(len, self.figures), default=0)
        lines = [f"{name:{width}}  {value}" for name, value in self.figures.items()]
        lines += [str(audit) for audit in self.audits]
        lines += [f"ERROR: {error}" for error in self.errors]
        lines.append(f"seed {self.seed}: {'nothing lost' if self.is_good else 'FAILED'}")
        return "\n".join(lines)


class Chaos:
    """A context manager: whatever it has started has ended behind it.

    Args:
      seed: of the faults, and of how late messages are.
      folder: for ledgers and logs.
      subject: the pipelines.
      say: takes lines of the timeline.
    """

    def __init__(self, seed: int, folder: Path, subject: Subject, say: Print = print) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._subject = subject
        self._say = say
        self._stack = ExitStack()
        self._begin = time.monotonic()
        self._queues = 2
        self._struck: collections.Counter[str] = collections.Counter()
        self._told_at = 0.0
        self.report = Report(seed)

    def __enter__(self) -> Self:
        subject = self._subject
        with ExitStack() as stack:
            self._cluster = stack.enter_context(Cluster(name_servers=2, brokers=subject.brokers))
            self._proxies = {name: stack.enter_context(Proxy(server.address)) for name, server in self._servers()}
            address = ";".join(self._proxies[f"name server {number}"].address for number in range(2))
            security = Security(
                address_map={server.address: self._proxies[name].address for name, server in self._servers()}
            )
            self._client = RemotingQueueClient(ClientOptions(self._cluster.name_server))
            stack.callback(self._client.close)
            self._cluster.create_topic(SOURCE, self._queues)
            for topic, queues in subject.sinks.items():
                self._cluster.create_topic(topic, queues)
            subject.set_up(Setting(address, security, self._client, self._folder))
            stack.callback(subject.kill)
            subject.start()
            self._writers = [
                Writer(
                    *(name, kind, SOURCE),
                    name_server=address,
                    size=size,
                    pause_s=pause_s,
                    seed=self.report.seed,
                    security=security,
                )
                for name, kind, size, pause_s in _WRITERS
            ]
            for writer in self._writers:
                stack.callback(writer.stop, 0)
                writer.start()
            self._stack = stack.pop_all()
        brokers = ", ".join(subject.brokers)
        self._tell(f"two name servers, brokers {brokers}, {len(self._writers)} producers, {subject.title}; all is up")
        return self

    def __exit__(self, *_: object) -> None:
        logs = self._folder / "servers"
        for name, server in self._servers():  # their folders go with them
            logs.mkdir(exist_ok=True)
            if server.process.log.is_file():
                (logs / f"{name.translate(_PLAIN)}.log").write_bytes(server.process.log.read_bytes())
        self._stack.close()

    def rage(self, seconds: float) -> None:
        """Faults until the time is over; then all is repaired."""
        self._await_pipelines()
        self._tell("the pipelines read")
        end = time.monotonic() + seconds
        possible = [
            *faults.server_faults(self._cluster),
            *faults.network_faults(self._proxies),
            *self._subject.faults(),
            # By itself: it needs every server.
            faults.Fault("add a queue to", f"topic {SOURCE}", self._add_queue, is_lonely=True),
        ]
        first = [faults.Blow(2.0, (fault,), 2.0) for fault in self._subject.opening]
        for blow in itertools.chain(first, faults.blows(self._rng, possible)):
            if time.monotonic() + blow.pause_s >= end:
                break
            self._watch(blow.pause_s)
            for fault in blow.faults:
                self._tell(str(fault))
                self._struck[fault.sort] += self._during(fault.strike) is not False
            self._watch(blow.lasts_s)
            for fault in sorted(blow.faults, key=lambda fault: fault.rank):
                if fault.repair is not None:
                    self._during(fault.repair)
                    self._tell(f"{fault.target} is back")
            if self._subject.waits_after_a_fault:
                self._await_pipelines()
        self._watch(max(end - time.monotonic(), 0))

    def settle(self) -> Report:
        """Let what was sent be acknowledged, read and copied, and audit it."""
        report = self.report
        for proxy in self._proxies.values():
            proxy.heal()
        faults.heal([server for _, server in self._servers()])
        for writer in self._writers:
            writer.stop(_WRITERS_STOP_S)
            if writer.error is not None:
                report.errors.append(f"{writer!r}")
        self._tell("no more faults, no more messages: draining")
        stored = list(read_topic(self._client, SOURCE))
        try:
            self._drain(stored)
            self._tell("drained")
            self._subject.end()
        except AssertionError as error:
            report.errors.append(str(error))
        self._subject.kill()
        self._audit(stored)
        self._figures()
        if not any(writer.acked for writer in self._writers):
            report.errors.append("nothing was acknowledged, so nothing has been shown")
        return report

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _servers(self) -> Iterator[tuple[str, Server]]:
        for number, server in enumerate(self._cluster.name_servers):
            yield f"name server {number}", server
        for key, server in self._cluster.brokers.items():
            yield f"broker {key}", server

    def _add_queue(self) -> None:
        if self._queues < _MOST_QUEUES:
            self._queues += 1
            self._cluster.create_topic(SOURCE, self._queues)

    def _during(self, action: Callable[[], object]) -> object:
        """Watch while it is done; what it returns."""
        with ThreadPoolExecutor(1) as executor:
            future = executor.submit(action)
            while not future.done():
                self._watch(0.1)
            return future.result()

    def _await_pipelines(self) -> None:
        """Until they read."""
        end = time.monotonic() + self._subject.starts_in_s
        while not self._subject.is_reading():
            if time.monotonic() > end:
                raise AssertionError(f"a pipeline has read nothing {self._subject.starts_in_s:.0f} s after its start")
            self._watch(0.25)

    def _watch(self, seconds: float) -> None:
        """Follow the pipelines and producers. Raises if one of them has ended."""
        end = time.monotonic() + seconds
        while True:
            self._subject.look()
            for writer in self._writers:
                if writer.error is not None:
                    raise AssertionError(f"{writer!r}") from writer.error
            if time.monotonic() - self._told_at >= _PROGRESS_S:
                self._told_at = time.monotonic()
                acked = sum(len(writer.acked) for writer in self._writers)
                self._tell(f"    acknowledged {acked:,}, {self._subject.progress()}")
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.25))

    def _drain(self, stored: Records) -> None:
        """Until the pipelines have come to the end, and what they make of it is stored."""
        deadline = time.monotonic() + self._subject.drains_in_s
        while True:
            self._subject.look()
            missing = self._subject.missing(stored)
            if missing is None:
                return
            if time.monotonic() - self._told_at >= _PROGRESS_S:
                self._told_at = time.monotonic()
                self._tell(f"    left: {missing[:200]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not drained within {self._subject.drains_in_s:g} s: {missing}")
            time.sleep(0.25)

    def _audit(self, stored: Records) -> None:
        writers = self._writers
        acked = {id_: place for writer in writers for id_, place in writer.acked.items()}
        tried = {f"{writer.name}-{number:08d}" for writer in writers for number in range(writer.tried)}
        unsure = set().union(*(writer.unsure for writer in writers))
        ordered = [writer.name for writer in writers if writer.kind == "ordered"]
        self.report.audits = [
            audit_stored(ids_of(stored), acked, tried=tried, unsure=unsure, ordered=ordered),
            *self._subject.audits(stored),
        ]

    def _figures(self) -> None:
        writers = self._writers
        self.report.figures = {
            "faults": ", ".join(f"{count} x {sort}" for sort, count in sorted(self._struck.items()) if count) or "none",
            "tries repeated": f"{sum(writer.retries for writer in writers):,}",
            "tries of unknown outcome": f"{sum(writer.unknown_outcomes for writer in writers):,}",
            "longest wait for an acknowledgement": f"{max(writer.longest_wait_s for writer in writers):.1f} s",
            **self._subject.figures(),
            "queues of the source at the end": f"{self._queues} a broker",
            "time in all": f"{time.monotonic() - self._begin:.0f} s",
        }

    def _tell(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._begin:7.1f} s  {text}")


_PLAIN: Final = str.maketrans(" /", "--")
