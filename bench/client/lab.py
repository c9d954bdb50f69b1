"""Everything that runs during a benchmark: the broker, the Java peer, our workers, and the loaded topics."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from bench.common.config import BROKER_CONFIG, BROKER_HEAP_MB, TOPIC_QUEUES, Plan
from bench.common.jvm import JAVA, OUT, compile_java, find_jdk, java_command
from bench.common.process import LineProcess, Worker
from bench.common.report import say
from bench.common.tally import Tally, UnequalWork
from rmqio.local import LocalRocketMQ

_VISIBLE_S: Final = 60.0


class Lab:
    """Starts what is asked for when it is asked for; leaving the `with` block ends all of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._stack = ExitStack()
        self._workers: dict[str, Worker] = {}
        self._topics: set[str] = set()
        self._loaded: dict[str, Tally] = {}
        self._java: LineProcess | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            jdk = find_jdk()  # before anything is started: without it there is nothing to compare with
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqio-bench-")))
            class_path = compile_java(jdk, JAVA / "JavaPeer.java", OUT)
            say("starting RocketMQ ...")
            self.broker = stack.enter_context(LocalRocketMQ(broker_heap_mb=BROKER_HEAP_MB, broker_config=BROKER_CONFIG))
            self.name_server = self.broker.name_server
            self._java_command = java_command(jdk, class_path, self.folder, "JavaPeer", [self.name_server])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def java(self, line: str) -> dict[str, Any]:
        """Ask the Java peer."""
        if self._java is None:
            process = LineProcess("the Java peer", self._java_command, self.folder / "java.log", cwd=self.folder)
            self._java = self._stack.enter_context(process)
            say(f"Java peer: {self._java.ready['ready']}")
        return self._java.ask(line)

    @property
    def java_pid(self) -> int:
        """The process of the Java peer, which must have been asked before."""
        assert self._java is not None
        return self._java.pid

    def call(self, side: str, module: str, function: str, *, room: str = "client", **arguments: Any) -> dict[str, Any]:
        """Call a function of ours, in a room of `bench`, in the worker process of this side, with the name server."""
        worker = self._workers.get(side)
        if worker is None:
            worker = self._stack.enter_context(Worker(f"bench.{room}.{module}", self.folder / f"{side}.log"))
            self._workers[side] = worker
        return worker.call(function, {"name_server": self.name_server} | arguments)

    def call_plain(self, side: str, function: str, **arguments: Any) -> dict[str, Any]:
        """Call a function that takes no name server, in the worker process of a side that has one already."""
        return self._workers[side].call(function, arguments)

    def end(self, side: str) -> None:
        """End a side's worker process; the next call gets a fresh one."""
        worker = self._workers.pop(side, None)
        if worker is not None:
            worker.close()

    def topic(self, name: str, queues: int = TOPIC_QUEUES) -> str:
        """A topic that exists."""
        if name not in self._topics:
            self.broker.create_topic(name, queues=queues)
            self._topics.add(name)
        return name

    def loaded(self, size: int, count: int) -> str:
        """A topic with so many messages of this size, sent by Java's producer and checked by reading them back."""
        name = self.topic(f"load_{size}_{count}")
        if name not in self._loaded:
            say(f"loading {count:,} messages of {size} bytes ...")
            sent = Tally.from_answer(self.java(f"send {name} {count} {size} {self.plan.batch} 1") | {"offsets": None})
            self._loaded[name] = self.read_back(name, {}, Tally(sent.count, sent.bytes))
        return name

    def ends(self, topic: str) -> dict[str, int]:
        """The ends of a topic's queues."""
        return self.call("checker", "ours", "ends", topic=topic)

    def _grown(self, topic: str, begin: Mapping[str, int]) -> int:
        return sum(end - begin.get(queue, 0) for queue, end in self.ends(topic).items())

    def read_back(self, topic: str, begin: Mapping[str, int], sent: Tally) -> Tally:
        """Tallies all behind `begin`: the queues must have grown by what was sent, and reading gives the sums."""
        # A broker acknowledges when a message is in the log; its queue shows it a little later.
        deadline = time.monotonic() + _VISIBLE_S
        while (grown := self._grown(topic, begin)) < sent.count and time.monotonic() < deadline:
            time.sleep(0.05)
        if grown != sent.count:
            raise UnequalWork(f"{topic}: {sent.count} messages were acknowledged, the queues grew by {grown}")
        answer = self.call("checker", "ours", "pull", topic=topic, count=sent.count, begin=dict(begin))
        found = Tally.from_answer(answer)
        if (found.count, found.bytes) != (sent.count, sent.bytes):
            raise UnequalWork(f"{topic}: sent {sent}, read back {found}")
        # Sides may spread messages over the queues differently: where they are is not part of the work.
        return Tally(found.count, found.bytes, None, found.crcs)
