"""The watermark of a partition, with the time since when nothing is left of it."""

from __future__ import annotations

from apache_beam.coders import Coder, TupleCoder, VarIntCoder
from apache_beam.transforms.core import WatermarkEstimatorProvider

from rmqio.transforms.parts import QueueWatermark, QueueWatermarks

State = tuple[int, int]
"""The watermark in microseconds; and since when the partition is read to its end, in Unix milliseconds, or -1."""


class PartitionWatermark(QueueWatermark):
    """A `QueueWatermark` whose state also says since when the partition is read to its end.

    A runner keeps the state from one bundle to the next. It need not keep the DoFn: Spark makes one for each
    micro-batch.
    """

    def __init__(self, micros: int, quiet_since_ms: int) -> None:
        super().__init__(micros)
        self.quiet_since_ms = quiet_since_ms

    def get_estimator_state(self) -> State:  # type: ignore[override]
        return super().get_estimator_state(), self.quiet_since_ms

    def heard(self) -> None:
        """State that the partition had messages."""
        self.quiet_since_ms = -1

    def quiet(self, now_ms: int) -> int:
        """State that the partition is read to its end. Returns for how many milliseconds it has been."""
        if not 0 <= self.quiet_since_ms <= now_ms:
            self.quiet_since_ms = now_ms
        return now_ms - self.quiet_since_ms


class PartitionWatermarks(WatermarkEstimatorProvider):
    """Creates `PartitionWatermark`s."""

    def initial_estimator_state(self, element: object, restriction: object) -> State:
        return QueueWatermarks().initial_estimator_state(element, restriction), -1

    def create_watermark_estimator(self, estimator_state: State) -> PartitionWatermark:
        return PartitionWatermark(*estimator_state)

    def estimator_state_coder(self) -> Coder:
        return TupleCoder([VarIntCoder(), VarIntCoder()])
