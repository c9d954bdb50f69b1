"""Clients of Kafka: their configuration, checked, and what their errors mean."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqio.errors import LocalError, RmqioError

_OURS: Final = {
    "bootstrap.servers": "the first argument",
    "enable.auto.commit": "nothing: the runner keeps the positions",
    "auto.offset.reset": "start=",
    "group.id": "nothing: partitions are assigned, and the runner keeps the positions",
    "enable.idempotence": "nothing: it is on",
    "acks": "nothing: all replicas in sync acknowledge",
}
TIMEOUT_S: Final = 30.0
_LOGGER: Final = logging.getLogger("rmqio.connect.kafka")


class KafkaAway(RmqioError):
    """The cluster did not answer, or answered that it can do so later."""

    retriable = True


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """A cluster and the options of clients, of librdkafka. `repr` shows no option, since they can hold passwords."""

    servers: str
    config: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, servers: Any, config: Mapping[str, Any] | None) -> Cluster:
        """Checks them. Raises `LocalError`."""
        if not isinstance(servers, str) or not servers or any(":" not in each for each in servers.split(",")):
            raise LocalError(f"bootstrap_servers is {servers!r}; it must be like host:9092,other:9092")
        _require_client()
        for name in config or {}:
            if name in _OURS:
                raise LocalError(f"config cannot set {name}: use {_OURS[name]}")
        return cls(servers, tuple(sorted((config or {}).items())))

    def __repr__(self) -> str:
        return f"Cluster({self.servers})"

    def consumer(self) -> Any:
        """Returns a consumer whose partitions are assigned, and which commits nothing."""
        from confluent_kafka import Consumer

        return Consumer({
            **dict(self.config),
            "bootstrap.servers": self.servers,
            "group.id": "rmqio",  # the client insists on one; no broker hears of it, since partitions are assigned
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # a gap is an error, and never a jump
            "enable.partition.eof": True,
        }, logger=_LOGGER)  # fmt: skip

    def producer(self) -> Any:
        """Returns a producer that keeps the order of a partition, and whose retries double nothing."""
        from confluent_kafka import Producer

        return Producer(
            {"linger.ms": 5, **dict(self.config), "bootstrap.servers": self.servers, "enable.idempotence": True},
            logger=_LOGGER,
        )


def meaning_of(error: Any, what: str) -> RmqioError:
    """Returns our error for one of the client's: one that can be retried, or a `LocalError`."""
    from confluent_kafka import KafkaError

    found = error.args[0] if isinstance(error, Exception) and error.args else error
    text = f"{what}: {found.str() if isinstance(found, KafkaError) else found}"
    set_up = {
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG, KafkaError.TOPIC_EXCEPTION,
    }  # fmt: skip
    if isinstance(found, KafkaError) and found.code() in set_up:
        return LocalError(text)
    return KafkaAway(text)


def _require_client() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise LocalError("Kafka needs the client confluent-kafka: pip install 'rmqio[kafka]'") from error
