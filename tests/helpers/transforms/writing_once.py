"""Instances of a DoFn that writes exactly once, on an in-memory cluster, as processes that come and go."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.options import WriteOptions
from rmqio.repeats.attempts import Attempt, running
from rmqio.repeats.look_back import LookBack
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.writing import sink as sinks
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.sink import Sink
from rmqio.transforms.writing.write_fn import WriteFn
from rmqio.transforms.writing.write_once import committed

GROUP = "position"


def sink_of(cluster: InMemoryCluster, **look_back: Any) -> Sink:
    return Sink(InMemoryClientFactory(cluster.name), GROUP, LookBack(**look_back), 0)


class Writer:
    """One instance of the DoFn, with batches of three messages."""

    def __init__(self, cluster: InMemoryCluster, sink: Sink | None = None, attempt: Attempt | None = None) -> None:
        self.cluster, self.sink, self.attempt = cluster, sink or sink_of(cluster), attempt
        fn = WriteFn(
            MessageMaker("t", id_fn=lambda body: f"id-{body.decode()}"),
            InMemoryClientFactory(cluster.name),
            "g",
            WriteOptions(max_batch_messages=3),
            sink=self.sink,
        )
        self.fn = fn
        self.fn.setup()

    def begin(self) -> None:
        with self._attempt():
            self.fn.start_bundle()

    def process(self, numbers: range) -> list[Any]:
        found: list[Any] = []
        for number in numbers:
            body = b"%d" % number
            found += self.fn.process(body, WindowedValue(body, 0, (GlobalWindow(),))) or []
        return found

    def finish(self) -> list[bytes]:
        """Finishes the bundle and returns the marks."""
        outputs = list(self.fn.finish_bundle())
        return [each.value.value for each in outputs if isinstance(each, TaggedOutput) and each.tag == "marks"]

    def run(self, numbers: range) -> list[bytes]:
        self.begin()
        self.process(numbers)
        return self.finish()

    def commit(self, marks: list[bytes]) -> None:
        for mark in marks:
            pickle.loads(pickle.dumps(committed))(self.sink, mark)

    def _attempt(self) -> Any:
        return nullcontext() if self.attempt is None else running(self.attempt)


def bodies(cluster: InMemoryCluster) -> list[int]:
    return sorted(int(record.body) for record in cluster.records("t"))


def position(cluster: InMemoryCluster) -> int:
    return sum(
        cluster.committed(GROUP, queue) or 0 for queue in InMemoryClientFactory(cluster.name).queue_client().queues("t")
    )


def new_process(sink: Sink) -> None:
    """Forgets what this process knows about the sink."""
    sinks._states.clear()


NORMAL, REPEAT = Attempt(False, commits_together=True), Attempt(True, commits_together=True)
