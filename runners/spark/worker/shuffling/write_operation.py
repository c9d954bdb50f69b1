"""The base of all write operations: the operations of Beam at the end of a fused stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqio.runners.spark.beam.private import common, operations

if TYPE_CHECKING:
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import bundle_processor
    from rmqio.runners.spark.worker.rows import RowWriter


class WriteOperation(operations.Operation):
    """The end of a stage. What `process` receives is written to rows in `finish` at the latest."""

    def __init__(
        self,
        name: str,
        transform_id: str,
        factory: bundle_processor.BeamTransformFactory,
        rows: RowWriter,
        channel: int,
    ) -> None:
        super().__init__(common.NameContext(name, transform_id), None, factory.counter_factory, factory.state_sampler)
        self._rows = rows
        self._channel = channel

    def handle(self, element: WindowedValue, value: Any) -> None:
        """Processes a value with the timestamp, windows and pane of `element`: see fused_dofns.py."""
        self.process(element.with_value(value))
