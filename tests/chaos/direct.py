"""On Beam's Direct runner: one pipeline that reads without end, and one that copies in runs that end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rmqio.local.config import Config
from tests.chaos import pipelines
from tests.chaos.audit import Audit, audit_copies, audit_read, audit_topics
from tests.chaos.faults import Fault
from tests.chaos.subject import SOURCE, Records, Setting, contents, ids_of
from tests.helpers.ledgers.ledger import Entry

_SINK: Final = "chaos-sink"


class Pipeline:
    """One of the pipelines: a process, and another when that was killed. Its ledgers are read while it writes them."""

    def __init__(self, what: str, setting: Setting) -> None:
        self.what = what
        self._folder = folder = setting.folder
        own = [f"--sink={_SINK}", f"--group=chaos-{what}", f"--runs={folder / f'{what}.runs'}"]
        self._arguments = [*setting.flags, *own]
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


class Direct:
    """Both of them."""

    title = "two pipelines on the Direct runner"
    brokers: Mapping[str, Config] = {"a": {}, "b": {}}
    sinks: Mapping[str, int] = {_SINK: 4}
    starts_in_s = 90.0
    drains_in_s = 90.0
    waits_after_a_fault = True  # one that starts while all brokers are down fails by right: no such topic is known
    opening: Sequence[Fault] = ()

    def __init__(self) -> None:
        self._left: list[set[Entry]] = []
        self._taken: dict[tuple[int, int], int] = {}

    def set_up(self, setting: Setting) -> None:
        self._setting = setting
        self._reading, self._copying = Pipeline("read", setting), Pipeline("copy", setting)

    @property
    def _pipelines(self) -> tuple[Pipeline, Pipeline]:
        return self._reading, self._copying

    def start(self) -> None:
        for pipeline in self._pipelines:
            pipeline.start()

    def kill(self) -> None:
        for pipeline in self._pipelines:
            pipeline.kill()

    def look(self) -> None:
        for pipeline in self._pipelines:
            pipeline.look()

    def is_reading(self) -> bool:
        return all(pipeline.lives[-1] for pipeline in self._pipelines)

    def faults(self) -> Sequence[Fault]:
        return [
            Fault("kill", f"pipeline {pipeline.what}", pipeline.kill, pipeline.start) for pipeline in self._pipelines
        ]

    def progress(self) -> str:
        return f"read {self._reading.count:,}, copied {self._copying.count:,}"

    def missing(self, stored: Records) -> str | None:
        """Both pipelines are to come to the end, and the copies of what was read to be stored."""
        sent = ids_of(stored)
        if not self._left:
            entries = {Entry(queue, offset, id_) for queue, those in sent.items() for offset, id_ in those.items()}
            self._left = [set(entries) for _ in self._pipelines]
        for number, pipeline in enumerate(self._pipelines):
            for life_number, life in enumerate(pipeline.lives):
                self._left[number].difference_update(life[self._taken.get((number, life_number), 0) :])
                self._taken[number, life_number] = len(life)
        client = self._setting.client
        behind = [
            queue
            for queue, messages in sent.items()
            if (client.committed_offset("chaos-copy", queue) or 0) < len(messages)
        ]
        if not any(self._left) and not behind:
            return None
        counts = ", ".join(
            f"pipeline {pipeline.what} lacks {len(those)}, first {sorted(those, key=str)[:5]}"
            for pipeline, those in zip(self._pipelines, self._left, strict=True)
        )
        return f"{counts}; not committed: {behind}"

    def end(self) -> None:
        self.kill()
        self.look()

    def audits(self, stored: Records) -> list[Audit]:
        sent = ids_of(stored)
        copies = contents(self._setting.client, _SINK, lambda record: pipelines.original_of(record.body))
        reads = [entry for life in self._copying.lives for entry in life]
        failed = self._copying.failed_runs()
        return [
            audit_read(self._reading.lives, sent),
            audit_copies(copies, reads, sent, failed_runs=failed),
            audit_topics(self._setting.client, SOURCE, _SINK),
        ]

    def figures(self) -> Mapping[str, str]:
        return {"longest wait of the endless read": f"{self._reading.longest_wait_s:.1f} s"}
