"""The base of all write operations: the operations of Beam at the end of a fused stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqio.runners.spark.beam.operations import Operation

if TYPE_CHECKING:
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import BeamTransformFactory
    from rmqio.runners.spark.worker.rows import RowWriter


class WriteOperation(Operation):
    """The end of a stage. Elements that `process` receives are written to rows in `finish` at the latest."""

    def __init__(
        self,
        name: str,
        transform_id: str,
        factory: BeamTransformFactory,
        rows: RowWriter,
        channel: int,
    ) -> None:
        super().__init__(name, transform_id, factory)
        self._rows = rows
        self._channel = channel

    def handle(self, element: WindowedValue, value: Any) -> None:
        """Processes a value with the timestamp, windows and pane of `element`: see fused_dofns.py."""
        self.process(element.with_value(value))
