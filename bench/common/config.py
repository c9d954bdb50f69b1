"""The measurements and their settings; all of it is printed with the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

TOPIC_QUEUES: Final = 8
"""RocketMQ's own default for a new topic; Java's consumer keeps one pull in flight per queue."""
BROKER_HEAP_MB: Final = 2048
BROKER_CONFIG: Final[dict[str, str | int | bool]] = {
    # On few cores a request may wait longer than the default 200 ms and would be refused, on either side.
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 10_000,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    messages: int = 200_000
    sync_messages: int = 20_000
    """Single sends take a millisecond each, on both sides, so fewer of them."""
    warm_ups: int = 2
    repeats: int = 5
    sizes: tuple[int, ...] = (100, 1024)
    batch: int = 500
    in_flight: int = 4
    memory_messages: int = 2_000_000
    idle_seconds: float = 30.0
    settle_seconds: float = 10.0
    ticks: int = 150
    tick_ms: int = 200
    thorough_search: bool = True
    runners: tuple[str, ...] = ()
    """Further runners for the latency, as arguments of `rmqio.runners.options`."""

    @classmethod
    def quick(cls, sizes: tuple[int, ...]) -> Plan:
        """To see that everything works; not for figures."""
        return cls(
            messages=50_000, sync_messages=2_000, warm_ups=1, repeats=2, sizes=sizes, memory_messages=400_000,
            idle_seconds=10.0, settle_seconds=5.0, ticks=40, thorough_search=False,
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """For the report."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class JavaPull:
    """Settings of a DefaultLitePullConsumer."""

    batch: int
    threads: int
    queue_threshold: int
    all_threshold: int
    poll_ms: int = 1000

    def __str__(self) -> str:
        return (
            f"pullBatchSize {self.batch}, pullThreadNums {self.threads}, pullThresholdForQueue {self.queue_threshold}, "
            f"pullThresholdForAll {self.all_threshold}, poll({self.poll_ms})"
        )

    def words(self) -> str:
        """As `JavaPeer` takes them."""
        return f"{self.batch} {self.threads} {self.queue_threshold} {self.all_threshold} {self.poll_ms}"


# pullThresholdForAll counts cached answers times pullBatchSize, not messages: with large batch sizes it must be large.
# Never fewer threads than queues: a thread that long-polls a queue that it has read to its end keeps the others waiting
# for up to 20 s, so the figure would be that of a stall.
JAVA_DEFAULTS: Final = JavaPull(10, 20, 1_000, 10_000, 5_000)
JAVA_CANDIDATES: Final[Sequence[JavaPull]] = (
    JAVA_DEFAULTS,
    JavaPull(32, 8, 1_000, 10_000),
    JavaPull(32, 8, 5_000, 50_000),
    JavaPull(32, 8, 50_000, 1_000_000),
    JavaPull(32, 8, 50_000, 1_000_000, 100),
    JavaPull(32, 12, 50_000, 1_000_000),
    JavaPull(32, 20, 50_000, 1_000_000),
    JavaPull(32, 20, 1_000, 10_000),
    JavaPull(256, 8, 50_000, 1_000_000),
    JavaPull(1024, 8, 1_000, 100_000),
    JavaPull(1024, 8, 10_000, 1_000_000),
    JavaPull(1024, 8, 50_000, 10_000_000),
    JavaPull(1024, 20, 50_000, 10_000_000),
)
