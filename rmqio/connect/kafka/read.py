"""`ReadFromKafka`: reads messages of Kafka, without Java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.kafka.client import Cluster
from rmqio.connect.kafka.ranges import Partition, check_start
from rmqio.connect.kafka.read_fn import BoundedPartitionFn, KafkaReadConfig, UnboundedPartitionFn
from rmqio.connect.kafka.records import KafkaRecord
from rmqio.connect.kafka.watch import FindFn, WatchFn
from rmqio.errors import LocalError
from rmqio.interfaces import ENDLESS_READ
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.parts import is_in_process


class ReadFromKafka(beam.PTransform):
    """Reads the messages of topics as `KafkaRecord`s, with their times as timestamps.

    The position of each partition is in the runner's checkpoint: after a restart, the read goes on there. Nothing is
    committed to Kafka, and no consumer group is used. Delivery is that of the runner: each message once in its state.

    Args:
      bootstrap_servers: such as `host:9092`, several separated by commas.
      topic: a name, or several.
      start: `StartFrom.earliest()`, `.latest()` or `.timestamp(...)`, resolved once.
      stop: `StopAt.latest()` or `.timestamp(...)`: the read ends there. None: it never ends.
      config: options of librdkafka, such as `{"security.protocol": "SASL_SSL", "isolation.level": "read_committed"}`.
        A password is in an environment variable or a file: `sasl.password_env`, `sasl.password_file`.
      max_out_of_orderness_ms: how much older than the newest message of a partition later ones can be.
      idle_timeout_ms: a partition that has been read to its end for so long does not hold back the watermark.
      give_up_after_s: a read that ends fails if a partition does not answer for so long. One that never ends waits.
      discovery_interval_ms: how often an endless read looks for new partitions, which it reads from their beginning; 0:
        only at the start, as always on the Direct runner.

    Raises `LocalError` when it is built, and on a worker if a topic does not exist.
    """

    start_advice: str = "give start=StartFrom.earliest()"
    """What to give if the read can read nothing, in the words of whoever built the pipeline."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | Sequence[str],
        *,
        start: StartFrom | None = None,
        stop: StopAt | None = None,
        config: Mapping[str, Any] | None = None,
        max_out_of_orderness_ms: int = 0,
        idle_timeout_ms: int = 10_000,
        give_up_after_s: float = 120.0,
        discovery_interval_ms: int = 30_000,
    ) -> None:
        super().__init__()
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or any(not isinstance(each, str) or not each for each in topics):
            raise LocalError(f"topic is {topic!r}; it must be a name, or a list of names")
        topics = list(dict.fromkeys(topics))  # each message is read once
        start = start or StartFrom.earliest()
        check_start(start, stop)
        for name, value in (
            ("max_out_of_orderness_ms", max_out_of_orderness_ms),
            ("idle_timeout_ms", idle_timeout_ms),
            ("discovery_interval_ms", discovery_interval_ms),
        ):
            if not isinstance(value, int) or value < 0:
                raise LocalError(f"{name} is {value!r}; it must be milliseconds, at least 0")
        defaults = {"queued.max.messages.kbytes": 16_384}  # of each partition; the client's default is 64 MiB
        cluster = Cluster.of(bootstrap_servers, {**defaults, **(config or {})})
        self._topics, self._discovery_interval_ms = topics, discovery_interval_ms
        self._config = KafkaReadConfig(cluster, start, stop, max_out_of_orderness_ms, idle_timeout_ms, give_up_after_s)

    def expand(self, pipeline: Any) -> Any:
        is_endless, cluster = self._config.stop is None, self._config.cluster
        kind = UnboundedPartitionFn if is_endless else BoundedPartitionFn
        # The in-process runner would finish the steps before the read first, and this one never ends.
        watches = is_endless and self._discovery_interval_ms > 0 and not is_in_process(pipeline.pipeline)
        if watches:
            find = beam.ParDo(WatchFn(cluster, self._topics, self._discovery_interval_ms))
            begun = pipeline | "Start" >> beam.Impulse()
        else:
            find = beam.ParDo(FindFn(cluster, self._config.start, self._config.stop, self.start_advice))
            begun = pipeline | "Topics" >> beam.Create(self._topics)
        partitions = begun | "Partitions" >> find.with_output_types(Partition)
        spread = partitions | "Spread" >> beam.Reshuffle()
        return spread | "Read" >> beam.ParDo(kind(self._config)).with_output_types(KafkaRecord)

    def annotations(self) -> dict[str, Any]:
        found: dict[str, Any] = super().annotations()
        return found if self._config.stop is not None else {**found, ENDLESS_READ: b""}

    def display_data(self) -> dict[str, Any]:
        config = self._config
        shown = {
            "bootstrap_servers": config.cluster.servers,
            "topic": ", ".join(self._topics),
            "start": str(config.start),
            "stop": None if config.stop is None else str(config.stop),
        }
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}
