"""The sink for topics of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from rmqio.connect.kafka.client import Cluster, KafkaAway, ask, meaning_of
from rmqio.connect.kafka.records import KafkaRecord, record_of
from rmqio.connect.rows import to_json, to_row
from rmqio.connect.sink import BatchSink, PerhapsRefused, RowRefused, Verdict, Written
from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.model import Message, Record
from rmqio.transforms.parts import copy_of

_ROOM: Final = 100
Key = str | Callable[[Any], Any] | None


class KafkaSink(BatchSink):
    """Produces messages, and waits until all replicas in sync have them."""

    def __init__(self, cluster: Cluster, topic: str | None, key: Key) -> None:
        self._cluster, self._topic, self._key = cluster, topic, key
        self.name = f"topic {topic or 'of each message'} of kafka://{cluster.servers}"
        self._producer: Any = None

    def open(self) -> None:
        """See `BatchSink`. Asks for the topic: the client would wait for one that does not exist."""
        producer = self._producer = self._cluster.producer(self.name)
        found = ask(producer, self.name, lambda timeout: producer.list_topics(self._topic, timeout=timeout))
        if self._topic is not None and (problem := found.topics[self._topic].error) is not None:
            raise meaning_of(problem, self.name)

    def close(self) -> None:
        """See `BatchSink`."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def convert(self, element: Any) -> Any:
        """See `BatchSink`. A `KafkaRecord`."""
        record = self._record(element)
        topic = record.topic or self._topic
        if not topic:
            raise RowRefused("no topic: neither the message nor topic= names one")
        if self._key is not None:
            record = record._replace(key=self._key_of(element))
        return record._replace(topic=topic)

    def destination(self, row: Any) -> Hashable:
        """See `BatchSink`. All topics share batches: the client sorts them by partition."""
        return None

    def size(self, row: Any) -> int:
        """See `BatchSink`."""
        return _ROOM + len(row.value or b"") + len(row.key or b"")

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        """See `BatchSink`."""
        from confluent_kafka import KafkaException

        if self._producer is None:
            self.open()
        self._producer.reports.clear()
        errors: dict[int, RmqioError] = {}
        for position, record in enumerate(rows):
            try:
                self._send(record, self._noting(errors, position))
            except KafkaException as error:  # too large, or no such topic: nothing was sent
                errors[position] = self._meaning(error)
            except (TypeError, ValueError) as error:
                errors[position] = RowRefused(f"the client refuses the message: {error}")
        self._producer.flush()  # ends for each message within the client's message.timeout.ms
        if not errors:
            return None
        for found in errors.values():
            if isinstance(found, LocalError):
                raise found
        refused = {place: each for place, each in errors.items() if isinstance(each, RowRefused)}
        again = {place: each for place, each in errors.items() if place not in refused}
        if again:  # after a fatal error the client sends nothing more
            self.close()
        return Written(refused, again)

    def judge(self, error: Exception) -> Verdict:
        """See `BatchSink`."""
        return Verdict.RETRY if isinstance(error, KafkaAway) else super().judge(error)

    def _send(self, record: KafkaRecord, on_delivery: Any) -> None:
        more: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}
        if record.timestamp_ms >= 0:
            more["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, on_delivery=on_delivery, **more)
                return
            except BufferError:  # the client's own buffer is full
                self._producer.poll(0.1)

    def _noting(self, errors: dict[int, RmqioError], position: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors[position] = self._meaning(error)

        return delivered

    def _meaning(self, error: Any) -> RmqioError:
        from confluent_kafka import KafkaError

        found = error.args[0] if isinstance(error, Exception) else error
        refused = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_TIMESTAMP)
        if isinstance(found, KafkaError) and found.code() in refused:
            return RowRefused(f"{self.name}: {found.str()}")
        if isinstance(found, KafkaError) and found.code() == 87:  # INVALID_RECORD, as of a compacted topic without key
            return PerhapsRefused(f"{self.name}: {found.str()}")
        if isinstance(found, KafkaError) and found.code() == KafkaError._MSG_TIMED_OUT and self._producer is not None:
            return KafkaAway(f"{self.name}: {found.str()}{self._producer.reports}")
        return meaning_of(found, self.name)

    @staticmethod
    def _record(element: Any) -> KafkaRecord:
        if isinstance(element, KafkaRecord):
            return element._replace(partition=-1, offset=-1)
        if isinstance(element, bytes):
            return KafkaRecord(element)
        if isinstance(element, str):
            return KafkaRecord(element.encode())
        if isinstance(element, Record):
            return record_of(copy_of(element), element.born_timestamp_ms)
        if isinstance(element, Message):
            return record_of(element)
        return KafkaRecord(to_json(to_row(element)).encode("utf-8", "backslashreplace"))

    def _key_of(self, element: Any) -> bytes | None:
        found = self._key(element) if callable(self._key) else to_row(element).get(str(self._key))
        if found is None or isinstance(found, bytes):
            return found
        if isinstance(found, (str, int)):
            return str(found).encode()
        raise SerdeError(f"the key {found!r:.60} is neither bytes, nor text, nor a number")
