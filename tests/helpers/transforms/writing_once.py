"""Instances of a DoFn that writes exactly once, on an in-memory cluster, as processes that come and go."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

from apache_beam.pvalue import TaggedOutput

from rmqio.options import WriteOptions
from rmqio.repeats import Attempt, LookBack, in_attempt
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.writing import sink_state as sinks
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.exactly_once import committed
from rmqio.transforms.writing.sink_state import Sink
from rmqio.transforms.writing.write_fn import BatchWriteFn, WriteFn
from tests.helpers.transforms.write_bundles import gathered, taken_apart, windowed

GROUP = "position"


def sink_of(cluster: InMemoryCluster, **look_back: Any) -> Sink:
    return Sink(InMemoryClientFactory(cluster.name), GROUP, LookBack(**look_back), 0)


class Writer:
    """One instance of the DoFn, which sends three messages at a time."""

    in_batches: ClassVar[bool] = False
    """Whether the elements of each call are one list, for a `BatchWriteFn`."""

    def __init__(self, cluster: InMemoryCluster, sink: Sink | None = None, attempt: Attempt | None = None) -> None:
        self.cluster, self.sink, self.attempt = cluster, sink or sink_of(cluster), attempt
        self.fn = self.made_fn(MessageMaker("t", id_fn=lambda body: f"id-{body.decode()}"))
        self.fn.setup()

    def made_fn(self, maker: MessageMaker) -> WriteFn:
        kind, factory = BatchWriteFn if self.in_batches else WriteFn, InMemoryClientFactory(self.cluster.name)
        return kind(maker, factory, "g", WriteOptions(max_batch_messages=3), sink=self.sink)

    def begin(self) -> None:
        with self._attempt():
            self.fn.start_bundle()

    def process(self, numbers: range) -> list[Any]:
        return self.give([b"%d" % number for number in numbers])

    def give(self, elements: Sequence[Any]) -> list[Any]:
        """Processes elements and returns their outputs."""
        values = windowed(elements)
        outputs: list[Any] = []
        for value in gathered(values) if self.in_batches else values:
            outputs += self.fn.process(value.value, value) or []
        return self._each(outputs)

    def outputs(self) -> list[Any]:
        """Finishes the bundle and returns its outputs."""
        return self._each(list(self.fn.finish_bundle()))

    def _each(self, outputs: list[Any]) -> list[Any]:
        return list(taken_apart(outputs)) if self.in_batches else outputs

    def finish(self) -> list[bytes]:
        """Finishes the bundle and returns the marks."""
        outputs = self.outputs()
        return [each.value.value for each in outputs if isinstance(each, TaggedOutput) and each.tag == "marks"]

    def run(self, numbers: range) -> list[bytes]:
        self.begin()
        self.process(numbers)
        return self.finish()

    def commit(self, marks: list[bytes]) -> None:
        for mark in marks:
            pickle.loads(pickle.dumps(committed))(self.sink, mark)

    def _attempt(self) -> Any:
        return nullcontext() if self.attempt is None else in_attempt(self.attempt)


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
