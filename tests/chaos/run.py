"""One run: the cluster, its producers and pipelines, the faults, the drain, and the audit."""

from __future__ import annotations

import collections
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from rmqio.client.client import RemotingQueueClient
from rmqio.model import Record
from rmqio.options import ClientOptions
from rmqio.pipelines.check import read_topic
from rmqio.security import Security
from tests.chaos import faults, pipelines
from tests.chaos.audit import Audit, audit_copies, audit_read, audit_stored
from tests.chaos.writers import Kind, Writer
from tests.helpers.cluster import Cluster
from tests.helpers.ledger import Entry, Sent
from tests.helpers.proxy import Proxy

_SOURCE: Final = "chaos-source"
_SINK: Final = "chaos-sink"
_WRITERS: Final[tuple[tuple[str, Kind, int, float], ...]] = (
    ("single", "single", 1, 0.02),
    ("batch", "batch", 30, 0.1),
    ("other", "batch", 5, 0.1),
    ("ordered", "ordered", 20, 0.2),
)
"""Name, kind, messages of a batch, pause in seconds."""
_MOST_QUEUES: Final = 6
_PROGRESS_S: Final = 10.0
_START_S: Final = 90.0
DRAIN_S: Final = 90.0
Print = Callable[[str], object]


class Pipeline:
    """One of the pipelines: a process, and another when that was killed. Its ledgers are read while it writes them."""

    def __init__(self, what: str, name_server: str, security: Security, folder: Path) -> None:
        self.what = what
        self._folder = folder
        self._arguments = [
            f"--name_server={name_server}",
            f"--source={_SOURCE}",
            f"--sink={_SINK}",
            f"--group=chaos-{what}",
            f"--runs={folder / f'{what}.runs'}",
            *(f"--address_map={origin}={target}" for origin, target in dict(security.address_map).items()),
        ]
        self.lives: list[list[Entry]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._positions: list[int] = []
        self.arrived_at = time.monotonic()
        self.longest_wait_s = 0.0
        """Without a message."""

    @property
    def count(self) -> int:
        return sum(map(len, self.lives))

    @property
    def log(self) -> Path:
        return self._folder / f"{self.what}.log"

    def start(self) -> None:
        number = len(self.lives)
        ledger = self._ledger(number)
        ledger.touch()
        self._positions.append(0)
        self.lives.append([])  # last: another thread may be looking
        command = [sys.executable, "-m", "tests.chaos.pipelines", self.what, f"--ledger={ledger}", *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL. What it had written is in its ledger."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def look(self) -> None:
        """Take what it has written since. Raises if it has ended by itself."""
        for number, life in enumerate(self.lives):
            with self._ledger(number).open("rb") as file:
                file.seek(self._positions[number])
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._positions[number] += len(whole)
            new = [pipelines.entry_of(line) for line in whole.decode().splitlines()]
            life += new
            now = time.monotonic()
            self.longest_wait_s = max(self.longest_wait_s, now - self.arrived_at)
            if new:
                self.arrived_at = now
        process = self._process
        if process is not None and process.poll() is not None:
            raise AssertionError(f"pipeline {self.what} has ended by itself:\n{self.log.read_text()[-3000:]}")

    def failed_runs(self) -> int:
        runs = self._folder / f"{self.what}.runs"
        return runs.read_text().splitlines().count("failed") if runs.exists() else 0

    def _ledger(self, number: int) -> Path:
        return self._folder / f"{self.what}-{number}.ledger"


@dataclass
class Report:
    """What a run has found."""

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
      seed: of the faults.
      folder: for ledgers and logs.
      say: takes lines of the timeline.
    """

    def __init__(self, seed: int, folder: Path, say: Print = print) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._say = say
        self._stack = ExitStack()
        self._begin = time.monotonic()
        self._queues = 2
        self._struck: collections.Counter[str] = collections.Counter()
        self._told_at = 0.0
        self.report = Report(seed)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._cluster = stack.enter_context(Cluster(name_servers=2, brokers=("a", "b")))
            self._proxies = {name: stack.enter_context(Proxy(server.address)) for name, server in self._servers()}
            address = ";".join(self._proxies[f"name server {number}"].address for number in range(2))
            security = Security(
                address_map={server.address: self._proxies[name].address for name, server in self._servers()}
            )
            self._client = RemotingQueueClient(ClientOptions(self._cluster.name_server))
            stack.callback(self._client.close)
            self._cluster.create_topic(_SOURCE, self._queues)
            self._cluster.create_topic(_SINK, 4)
            self._reading = Pipeline("read", address, security, self._folder)
            self._copying = Pipeline("copy", address, security, self._folder)
            for pipeline in self._pipelines:
                stack.callback(pipeline.kill)
                pipeline.start()
            self._writers = [
                Writer(name, kind, _SOURCE, name_server=address, size=size, pause_s=pause_s, security=security)
                for name, kind, size, pause_s in _WRITERS
            ]
            for writer in self._writers:
                stack.callback(writer.stop, 0)
                writer.start()
            self._stack = stack.pop_all()
        self._tell(f"two name servers, two brokers, {len(self._writers)} producers, two pipelines; all is up")
        return self

    def __exit__(self, *_: object) -> None:
        logs = self._folder / "servers"
        for name, server in self._servers():  # their folders go with them
            logs.mkdir(exist_ok=True)
            if server.process.log.is_file():
                (logs / f"{name.replace(' ', '-')}.log").write_bytes(server.process.log.read_bytes())
        self._stack.close()

    def rage(self, seconds: float) -> None:
        """Faults until the time is over; then all is repaired."""
        self._await_pipelines()
        end = time.monotonic() + seconds
        possible = [
            *faults.server_faults(self._cluster),
            *faults.network_faults(self._proxies),
            *self._further_faults(),
        ]
        for blow in faults.blows(self._rng, possible):
            if time.monotonic() + blow.pause_s >= end:
                break
            self._watch(blow.pause_s)
            for fault in blow.faults:
                self._tell(str(fault))
                self._struck[fault.sort] += 1
                self._during(fault.strike)
            self._watch(blow.lasts_s)
            for fault in sorted(blow.faults, key=lambda fault: fault.rank):
                if fault.repair is not None:
                    self._during(fault.repair)
                    self._tell(f"{fault.target} is back")
            self._await_pipelines()
        self._watch(max(end - time.monotonic(), 0))

    def settle(self) -> Report:
        """Let what was sent be acknowledged, read and copied, and audit it."""
        report = self.report
        for proxy in self._proxies.values():
            proxy.heal()
        faults.heal([server for _, server in self._servers()])
        for writer in self._writers:
            writer.stop(DRAIN_S)
            if writer.error is not None:
                report.errors.append(f"{writer!r}")
        self._tell("no more faults, no more messages: draining")
        stored = self._contents(_SOURCE, lambda record: record.body.decode())
        try:
            self._drain(stored)
        except AssertionError as error:
            report.errors.append(str(error))
        for pipeline in self._pipelines:
            pipeline.kill()
            pipeline.look()
        self._audit(stored)
        self._figures()
        return report

    # ---- parts ------------------------------------------------------------------------------------------------------

    @property
    def _pipelines(self) -> tuple[Pipeline, Pipeline]:
        return self._reading, self._copying

    def _servers(self) -> Iterator[tuple[str, faults.Server]]:
        for number, server in enumerate(self._cluster.name_servers):
            yield f"name server {number}", server
        for key, server in self._cluster.brokers.items():
            yield f"broker {key}", server

    def _further_faults(self) -> list[faults.Fault]:
        found = [
            faults.Fault("kill", f"pipeline {pipeline.what}", pipeline.kill, pipeline.start)
            for pipeline in self._pipelines
        ]
        # By itself: it needs every server.
        return [*found, faults.Fault("add a queue to", f"topic {_SOURCE}", self._add_queue, is_lonely=True)]

    def _add_queue(self) -> None:
        if self._queues < _MOST_QUEUES:
            self._queues += 1
            self._cluster.create_topic(_SOURCE, self._queues)

    def _during(self, action: Callable[[], object]) -> None:
        """Watch while it is done."""
        with ThreadPoolExecutor(1) as executor:
            future = executor.submit(action)
            while not future.done():
                self._watch(0.1)
            future.result()

    def _await_pipelines(self) -> None:
        """Until each reads. One that starts while all brokers are down fails by right: then no such topic is known."""
        end = time.monotonic() + _START_S
        while not all(pipeline.lives[-1] for pipeline in self._pipelines):
            if time.monotonic() > end:
                raise AssertionError(f"a pipeline has read nothing {_START_S:.0f} s after its start")
            self._watch(0.25)

    def _watch(self, seconds: float) -> None:
        """Follow the pipelines and producers. Raises if one of them has ended."""
        end = time.monotonic() + seconds
        while True:
            for pipeline in self._pipelines:
                pipeline.look()
            for writer in self._writers:
                if writer.error is not None:
                    raise AssertionError(f"{writer!r}") from writer.error
            if time.monotonic() - self._told_at >= _PROGRESS_S:
                self._told_at = time.monotonic()
                acked = sum(len(writer.acked) for writer in self._writers)
                counts = f"acknowledged {acked:,}, read {self._reading.count:,}, copied {self._copying.count:,}"
                self._tell(f"    {counts}")
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.25))

    def _contents(self, topic: str, what: Callable[[Record], object]) -> Sent:
        found: dict[object, dict[int, object]] = {queue: {} for queue in self._client.queues(topic)}
        for record in read_topic(self._client, topic):
            found[record.queue][record.queue_offset] = what(record)
        return found  # type: ignore[return-value]

    def _drain(self, stored: Sent) -> None:
        """Until both pipelines have come to the end, and the copies of what was read are stored."""
        left = [
            {Entry(queue, offset, id_) for queue, messages in stored.items() for offset, id_ in messages.items()}
            for _ in self._pipelines
        ]
        taken: dict[tuple[int, int], int] = {}
        deadline = time.monotonic() + DRAIN_S
        while True:
            for number, pipeline in enumerate(self._pipelines):
                pipeline.look()
                for life_number, life in enumerate(pipeline.lives):
                    left[number].difference_update(life[taken.get((number, life_number), 0) :])
                    taken[number, life_number] = len(life)
            behind = [
                queue
                for queue, messages in stored.items()
                if (self._client.committed_offset("chaos-copy", queue) or 0) < len(messages)
            ]
            if not any(left) and not behind:
                return
            if time.monotonic() > deadline:
                counts = ", ".join(
                    f"pipeline {pipeline.what} lacks {len(those)}, first {sorted(those, key=str)[:5]}"
                    for pipeline, those in zip(self._pipelines, left, strict=True)
                )
                raise AssertionError(f"not drained within {DRAIN_S:g} s: {counts}; not committed: {behind}")
            time.sleep(0.25)

    def _audit(self, stored: Sent) -> None:
        writers = self._writers
        acked = {id_: place for writer in writers for id_, place in writer.acked.items()}
        tried = {f"{writer.name}-{number:08d}" for writer in writers for number in range(writer.tried)}
        unsure = set().union(*(writer.unsure for writer in writers))
        ordered = [writer.name for writer in writers if writer.kind == "ordered"]
        copies = self._contents(_SINK, lambda record: pipelines.original_of(record.body))
        reads = [entry for life in self._copying.lives for entry in life]
        failed = self._copying.failed_runs()
        self.report.audits = [
            audit_stored(stored, acked, tried=tried, unsure=unsure, ordered=ordered),
            audit_read(self._reading.lives, stored),
            audit_copies(copies, reads, stored, failed_runs=failed),
        ]

    def _figures(self) -> None:
        writers = self._writers
        self.report.figures = {
            "faults": ", ".join(f"{count} x {sort}" for sort, count in sorted(self._struck.items())) or "none",
            "tries repeated": f"{sum(writer.retries for writer in writers):,}",
            "tries of unknown outcome": f"{sum(writer.unknown_outcomes for writer in writers):,}",
            "longest wait for an acknowledgement": f"{max(writer.longest_wait_s for writer in writers):.1f} s",
            "longest wait of the endless read": f"{self._reading.longest_wait_s:.1f} s",
            "queues of the source at the end": f"{self._queues} a broker",
            "time in all": f"{time.monotonic() - self._begin:.0f} s",
        }

    def _tell(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._begin:7.1f} s  {text}")
