"""A `WriteFn` on an in-memory cluster, driven bundle by bundle."""

from __future__ import annotations

import pickle
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.model import MessageQueue, Record
from rmqio.options import WriteOptions
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import WriteFn


class Bundles:
    """Runs a WriteFn on an in-memory cluster as a runner would."""

    def __init__(
        self,
        options: WriteOptions | None = None,
        maker: MessageMaker | None = None,
        kind: type[WriteFn] = WriteFn,
        **arguments: Any,
    ) -> None:
        self.clock = ManualClock()
        self.cluster = InMemoryCluster(clock=self.clock)
        self.cluster.create_topic("t", 4)
        fn = kind(
            maker or MessageMaker("t"),
            InMemoryClientFactory(self.cluster.name),
            "g",
            options or WriteOptions(),
            **arguments,
        )
        # As on a worker; the clock of a test cannot be pickled.
        self.fn: WriteFn = pickle.loads(pickle.dumps(fn))
        self.fn._clock = self.clock.monotonic
        self.fn.setup()
        self.outputs: list[Any] = []

    def process(self, *elements: Any) -> None:
        for element in elements:
            value = element if isinstance(element, WindowedValue) else WindowedValue(element, 0, (GlobalWindow(),))
            self.outputs += self.fn.process(value.value, value) or []

    def run(self, *elements: Any) -> None:
        self.fn.start_bundle()
        self.process(*elements)
        self.finish()

    def finish(self) -> None:
        self.outputs += self.fn.finish_bundle()

    @property
    def sent(self) -> list[WindowedValue]:
        return [output for output in self.outputs if not isinstance(output, TaggedOutput)]

    @property
    def failed(self) -> list[WindowedValue]:
        return [output.value for output in self.outputs if isinstance(output, TaggedOutput)]

    def records(self, topic: str = "t") -> list[Record]:
        return self.cluster.records(topic)

    def bodies(self, topic: str = "t") -> list[bytes]:
        return [record.body for record in self.records(topic)]


def batches_of(records: list[Record]) -> set[MessageQueue]:
    return {record.queue for record in records}


FIRST, SECOND = IntervalWindow(0, 10), IntervalWindow(5, 15)
