"""A `WriteFn`, or a `BatchWriteFn`, on an in-memory cluster, driven bundle by bundle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, ClassVar

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.model import MessageQueue, Record
from rmqio.options import WriteOptions
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import BatchWriteFn, WriteFn


class Bundles:
    """Runs a WriteFn on an in-memory cluster as a runner would.

    Args:
      kind: the class of the DoFn; None: `WriteFn`, or `BatchWriteFn` while `in_batches` is set.
    """

    in_batches: ClassVar[bool] = False
    """Whether what a test gives one by one is written in lists: neighbours of one window, timestamp and pane together.

    Results and failures are then taken apart again, so that a test looks the same.
    """

    def __init__(
        self,
        options: WriteOptions | None = None,
        maker: MessageMaker | None = None,
        kind: type[WriteFn] | None = None,
        **arguments: Any,
    ) -> None:
        self.clock = ManualClock()
        self.cluster = InMemoryCluster(clock=self.clock)
        self.cluster.create_topic("t", 4)
        self._gathers = self.in_batches and kind is None
        fn = (kind or (BatchWriteFn if self._gathers else WriteFn))(
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
        values = windowed(elements)
        for value in gathered(values) if self._gathers else values:
            self._take(self.fn.process(value.value, value) or ())

    def run(self, *elements: Any) -> None:
        self.fn.start_bundle()
        self.process(*elements)
        self.finish()

    def finish(self) -> None:
        self._take(self.fn.finish_bundle())

    def _take(self, outputs: Iterable[Any]) -> None:
        self.outputs += taken_apart(outputs) if self._gathers else outputs

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


def windowed(elements: Iterable[Any]) -> list[WindowedValue]:
    return [each if isinstance(each, WindowedValue) else WindowedValue(each, 0, (GlobalWindow(),)) for each in elements]


def gathered(values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
    """Lists of neighbours that have the same window, timestamp and pane."""
    for _, members in groupby(values, lambda value: (value.timestamp, value.windows, value.pane_info)):
        same = list(members)
        yield same[0].with_value([each.value for each in same])


def taken_apart(outputs: Iterable[Any]) -> Iterator[Any]:
    """The results of lists one by one, and all other outputs."""
    for output in outputs:
        if isinstance(output, TaggedOutput):
            yield output
        elif isinstance(output.value, list):
            yield from map(output.with_value, output.value)
        else:
            yield output


def batches_of(records: list[Record]) -> set[MessageQueue]:
    return {record.queue for record in records}


FIRST, SECOND = IntervalWindow(0, 10), IntervalWindow(5, 15)
