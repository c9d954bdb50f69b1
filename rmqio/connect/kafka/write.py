"""`WriteToKafka`: writes messages to Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqio.connect.kafka.client import Cluster
from rmqio.connect.kafka.sink import KafkaSink
from rmqio.connect.sink.options import Batching
from rmqio.connect.sink.transform import WriteToSink
from rmqio.errors import LocalError


class WriteToKafka(WriteToSink):
    """Writes each element as a message, by the Python client of librdkafka.

    Delivery: at least once. A bundle succeeds only when all replicas in sync have its messages. The client's own
    retries double nothing; a bundle that is run again writes its messages again.

    Order: messages with one key keep their order within a bundle. A message that is written again after an outage of
    more than the client's `message.timeout.ms` can come later than its successors.

    Args:
      bootstrap_servers: such as `host:9092`, several separated by commas.
      topic: for elements that name none. It must exist.
      key: the field that is the key, or a callable from the element to it. None: the key of a `KafkaRecord`, the
        sharding key or first key of a `Record` or `Message`, none of others.
      config: options of librdkafka, such as `{"security.protocol": "SASL_SSL", "compression.type": "zstd"}`.
        A password is in an environment variable or a file: `sasl.password_env`, `sasl.password_file`.
      batching, retry, batches, on_failure, dead_letter_topic, name_server, security, client_factory: see `WriteToSink`.

    Elements: `KafkaRecord`s; bytes, text, `Record`s and `Message`s, whose bodies are the values, and whose properties
    the headers; dicts and other rows, as JSON.

    Raises `LocalError` when it is built, and at the start of a worker if the topic does not exist.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | None = None,
        *,
        key: str | Callable[[Any], Any] | None = None,
        config: Mapping[str, Any] | None = None,
        batching: Batching | None = None,
        **options: Any,
    ) -> None:
        if topic is not None and (not isinstance(topic, str) or not topic):
            raise LocalError(f"topic is {topic!r}; it must be a name")
        cluster = Cluster.of(bootstrap_servers, {"message.timeout.ms": 30_000, **(config or {})})
        batching = batching or Batching(max_rows=10_000, max_bytes=8 << 20)
        super().__init__(KafkaSink(cluster, topic, key), batching=batching, **options)
