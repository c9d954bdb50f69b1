"""The DoFn of `WriteToRocketMQ(batches=True)`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Any

import apache_beam as beam

from rmqio.model import Message
from rmqio.transforms.writing.batches.elements import BatchMaker, MadeBatch, topics_of
from rmqio.transforms.writing.batches.outputs import BatchWriteOutputs, Origin
from rmqio.transforms.writing.outputs import WriteMetrics, WriteOutputs
from rmqio.transforms.writing.write_fn import WriteFn, check_once
from rmqio.wire import accelerator
from rmqio.wire.batch import batchable, estimated_size


def _plain_size(message: Message) -> int:
    """As `accelerator.usual_size`, in Python."""
    if type(message) is not Message or message.sharding_key is not None or message.properties or not message.body:
        return 0
    texts = (message.topic, message.tags)
    if type(message.keys) is not tuple or not all(text is None or isinstance(text, str) for text in texts):
        return 0
    return estimated_size(message) if batchable(message) else 0


_usual_size = accelerator.usual_size or _plain_size


class BatchWriteFn(WriteFn):
    """Sends each value of each batch as a message. Results go to the main output, as lists of `SendResult`.

    Delivery, windows, order, batching and failures are those of `WriteFn`: a batch of the input is not a request.
    Small ones are sent together, and large ones are split.

    Args: as `WriteFn`, without `ids`: a `Batch` and a `Record` have ids of their own.
    """

    def _made_outputs(self, metrics: WriteMetrics) -> WriteOutputs:
        maker = self._maker if self._with_letters else None
        return BatchWriteOutputs(metrics, with_sent=self._with_sent, maker=maker)

    def setup(self) -> None:
        self._batch_maker = BatchMaker(self._maker)
        super().setup()

    def process(self, element: Any, value: Any = beam.DoFn.WindowedValueParam) -> Iterator[Any] | None:
        origin = Origin(element, value.with_value(None))
        self._origin = origin.value
        try:
            made = self._batch_maker.make(element)
        except Exception as error:  # noqa: BLE001  # not a batch, or a changed one
            self._outputs.failed(None, origin, None, None, error)
            return self._take(origin.value)
        if self._claims is not None:
            made = self._claims.all(made, lambda at, message, *why: self._outputs.failed(at, origin, message, *why))
        for position, (message, reason) in made.failed.items():
            self._outputs.failed(position, origin, message, None if message is None else message[1], reason)
        if made.messages:
            self._add_all(made, origin)
        return self._take(origin.value) if self._outputs.waiting else None

    def _add_all(self, made: MadeBatch, origin: Origin) -> None:
        messages, ids, positions = made.messages, made.ids, made.positions
        if len(made.topics) == 1 and self._options.batch_flush and (self._once is None or None not in ids):
            sizes = [*map(_usual_size, messages)]
            if max(sizes) <= self._max_bytes:
                if all(sizes):
                    self._accumulator.extend(messages, made.topics[0], ids, positions, origin, sizes)
                    return
                # The usual messages have no keys, and so no order: they can go first.
                usual = [*compress(messages, sizes)]
                if usual:
                    self._accumulator.extend(
                        usual,
                        made.topics[0],
                        [*compress(ids, sizes)],
                        [*compress(positions, sizes)],
                        origin,
                        [*filter(None, sizes)],
                    )
                left = [not size for size in sizes]
                messages, ids, positions = (
                    [*compress(messages, left)],
                    [*compress(ids, left)],
                    [*compress(positions, left)],
                )
        for message, topic, message_id, position in zip(messages, topics_of(made), ids, positions, strict=False):
            try:
                if self._once is not None:
                    check_once(message, message_id)
                size = estimated_size(message)
            except Exception as error:  # noqa: BLE001  # fields of wrong types
                self._outputs.failed(position, origin, message, message[1], error)
                continue
            self._accumulator.add(message, topic, message_id, position, origin, size)
