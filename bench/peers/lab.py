"""One broker, the topics of the works, and the command lines of all sides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench.common.jvm import find_jdk
from bench.common.report import say
from bench.peers import connector, streams
from bench.peers.ledger import Ledger, compared
from bench.peers.race import Job, Outcome, Sink, run, run_bounded, run_killed
from bench.peers.works import PATTERNS, WORKS, Work
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions

_SPARK: Final = ("--runner=SparkRunner", "--spark_master_url=local[2]")
_STREAMS_OF_OURS: Final = {
    "rmqio, Direct": ("--runner=DirectRunner", "--stop=none"),
    "rmqio, Spark": (*_SPARK, "--streaming", "--stop=none"),
    "rmqio, Flink": ("--runner=FlinkRunner", "--streaming", "--checkpointing_interval=1000", "--stop=none"),
}
_BOUNDED: Final = {
    "rmqio, Direct, bounded": ("--runner=DirectRunner", "--stop=latest"),
    "rmqio, Spark, bounded": (*_SPARK, "--stop=latest"),
}
"""Each reads what the topic holds, and ends."""
_OURS: Final = {**_STREAMS_OF_OURS, **_BOUNDED}
_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAMS: Final = {
    "province": "pipelines/province.py",
    "sums": "pipelines/windowed_orders.py",
    "patterns": "bench/peers/matching.py",
}
_FLUSH, _ASYNC, _STREAMS = "rocketmq-flink, flush", "rocketmq-flink, async", "rocketmq-streams"
JOBS: Final = {
    "province": ("province", (*_OURS, _FLUSH, _ASYNC)),
    "killed": ("province", (*_STREAMS_OF_OURS, _FLUSH, _ASYNC)),
    "sums": ("sums", ("rmqio, Spark", "rmqio, Flink", *_BOUNDED, _STREAMS)),
    "patterns": ("patterns", (*_OURS, _STREAMS)),
}
"""The jobs: the work of each, and the sides that can do it. The Direct runner closes no window of a stream."""
SIDES: Final = (*_OURS, _FLUSH, _ASYNC, _STREAMS)
_QUEUES: Final = 4
_TIMEOUT_S: Final = 300.0


class Row(NamedTuple):
    """A line of the table."""

    job: str
    side: str
    messages: int
    outcome: Outcome
    ledger: Ledger


class Lab:
    """Builds and loads what is asked for when it is asked for. Raises `BenchError`."""

    def __init__(self, broker: LocalRocketMQ, folder: Path, count: int, clone: Path | None) -> None:
        self.broker, self.folder, self.count = broker, folder, count
        self._clone = clone
        self._class_paths: dict[str, str] = {}
        self._works: dict[str, Work] = {}
        self._runs = 0
        self._jdk = find_jdk()

    def row(self, job: str, side: str) -> Row:
        """Runs a side with a sink, a group and checkpoints of its own."""
        kind, _ = JOBS[job]
        work = self._loaded(kind)
        self._runs += 1
        name = f"run-{self._runs}"
        self.broker.create_topic(name, queues=_QUEUES)
        start = self._starter(side, kind, work, name)
        sink = Sink(self.broker.name_server, name)
        try:
            race = run_killed if job == "killed" else run_bounded if side in _BOUNDED else run
            outcome = race(start, sink, len(work.wanted), timeout_s=_TIMEOUT_S)
            return Row(job, side, len(work.bodies), outcome, compared(work, sink.records()))
        finally:
            sink.close()

    def _loaded(self, kind: str) -> Work:
        if kind not in self._works:
            say(f"loading {self.count:,} messages for {kind} ...")
            work = self._works[kind] = WORKS[kind](self.count)
            self.broker.create_topic(work.topic, queues=_QUEUES)
            producer = RemotingClientFactory(ClientOptions(self.broker.name_server)).producer("loading")
            queues = producer.queues(work.topic)
            for at in range(0, len(work.bodies), 500):
                batch = [Message(body, topic=work.topic) for body in work.bodies[at : at + 500]]
                producer.send_batch(batch, queues[at // 500 % len(queues)])
            producer.close()
        return self._works[kind]

    def _class_path(self, side: str) -> str:
        what = "streams" if side == _STREAMS else "connector"
        if what not in self._class_paths:
            say(f"building {side.partition(',')[0]} ...")
            if what == "streams":
                self._class_paths[what] = streams.build(self._jdk, self.folder / "streams")
            else:
                clone = self._clone or connector.cloned(self.folder / "rocketmq-flink")
                self._class_paths[what] = connector.build(self._jdk, clone, self.folder / "connector")
        return self._class_paths[what]

    def _starter(self, side: str, kind: str, work: Work, name: str) -> Callable[[], Job]:
        folder, where = self.folder / name, self.broker.name_server
        checkpoints, log = folder / "checkpoints", folder / "log"
        checkpoints.mkdir(parents=True)
        if side == _STREAMS:
            self._rewind(work.topic, name)  # it begins at the end of a topic
            (folder / "patterns").write_text("\n".join(PATTERNS))
            given = [kind, where, work.topic, name, name, str(folder / "patterns")]
            command = streams.command(self._jdk, self._class_path(side), folder, given)
            return lambda: Job(command, log, folder)
        if side in (_FLUSH, _ASYNC):
            path, given = self._class_path(side), [where, work.topic, name, name, side.rpartition(" ")[2]]
            return lambda: Job(connector.command(self._jdk, path, checkpoints, given), log, folder)
        command = [sys.executable, str(_ROOT / _PROGRAMS[kind]), *_OURS[side], f"--name_server={where}"]
        command += [f"--source_topic={work.topic}", f"--sink_topic={name}", f"--consumer_group={name}"]
        if "--streaming" in command:
            command.append(f"--checkpoint_dir={checkpoints}")
        return lambda: Job(command, log)

    def _rewind(self, topic: str, group: str) -> None:
        client = RemotingClientFactory(ClientOptions(self.broker.name_server)).queue_client()
        try:
            for queue in client.queues(topic):
                client.commit_offset(group, queue, 0)
        finally:
            client.close()
