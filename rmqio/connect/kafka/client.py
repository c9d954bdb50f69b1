"""Clients of Kafka: their configuration, checked, and what their errors mean."""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rmqio.connect.outage import EVERY_S, Outage, outage_of
from rmqio.errors import LocalError, RmqioError
from rmqio.security import SecretSource

# The reports of a client of librdkafka: why it is refused, why it cannot connect, and the lines that it would log.

_LOGGER: Final = logging.getLogger("rmqio.connect.kafka")
_CONNECTION: Final = ("FAIL", "ERROR")
"""The facilities of lines about connections. A client logs one for each of its tries: twenty in a second."""
_THREAD: Final = re.compile(r"^\[thrd:[^\]]*\]: ")
_STATE: Final = re.compile(r" \(after \d+ms in state \w+[^)]*\)$")
_NUMBERS: Final = re.compile(r"\d+")


def transient() -> set[int]:
    """Returns the codes of errors after which the client connects again by itself."""
    from confluent_kafka import KafkaError

    return {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}


class Reports:
    """Keeps what a client reports. The client calls it with each of its errors, and with its log, when it is polled.

    Args:
      name: the name of the system in the log.
      left_s: how long what the client does is tried again; None: until it succeeds.
      more: a function of the user's for errors.
      outage: for tests.
    """

    def __init__(
        self,
        name: str,
        left_s: float | None = None,
        more: Callable[[Any], Any] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._left_s, self._more = left_s, more
        self._outage = outage or outage_of(name)
        self.refusal: str | None = None
        """Why a broker and the client refused each other, as for a password. The client tries again for ever."""
        self.failure: str | None = None
        """Why the newest connection failed."""

    def __call__(self, error: Any) -> None:
        """Notes an error. All of them count as an outage when no broker is left."""
        from confluent_kafka import KafkaError

        # The client takes a broker's alert, as to a missing certificate, for an end of the connection.
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or "SSL alert" in error.str():
            self.refusal = error.str()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.failed(self.failure or error.str())
        elif error.code() in transient():
            self.failure = _STATE.sub("", error.str())
            if self._outage.is_on:
                self.failed(self.failure)
        if self._more is not None:
            self._more(error)

    def log(self, level: int, text: str, *values: Any) -> None:
        """Logs a line of the client's, as a logger does: facility, client and text. Lines that repeat are dropped."""
        facility, line = (str(values[0]), _THREAD.sub("", str(values[-1]))) if values else ("", text)
        is_connection = facility in _CONNECTION
        if is_connection:
            self.failure = _STATE.sub("", line)
        if is_connection and (self._outage.is_on or level < logging.WARNING):
            return
        # A broker of several that stays away is worth a line; one that is back soon is not.
        about = line.partition(": ")[0] if is_connection else _NUMBERS.sub("", line)
        if _REPEATS.is_due(f"{facility} {about}", at_once=not is_connection):
            _LOGGER.log(level, "%s: %s", facility, _STATE.sub("", line))

    def failed(self, reason: object) -> None:
        """Notes that nothing could be done."""
        self._outage.failed(reason, self._left_s)

    def passed(self) -> None:
        """Notes that a broker has answered."""
        self.failure = None
        self._outage.passed()

    def clear(self) -> None:
        """Forgets the reasons, before a new question."""
        self.refusal = self.failure = None

    def __str__(self) -> str:
        """The reason, for the end of a message; empty if there is none."""
        reason = self.refusal or self.failure
        return f": {reason}" if reason else ""


class _Repeats:
    """Lets a line through once in `EVERY_S`."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}
        """By line, when the period began, and when the line came last."""

    def is_due(self, line: str, *, at_once: bool) -> bool:
        now = time.monotonic()
        began, last = self._seen.get(line, (None, now))
        if began is None or now - last > EVERY_S:
            if len(self._seen) > 1_000:
                self._seen.clear()
            self._seen[line] = now, now
            return at_once
        due = now - began >= EVERY_S
        self._seen[line] = (now if due else began), now
        return due


_REPEATS: Final = _Repeats()


_OURS: Final = {
    "bootstrap.servers": "the address of the topic says it",
    "enable.auto.commit": "the runner keeps the positions",
    "auto.offset.reset": "start says where to begin",
    "group.id": "partitions are assigned, and the runner keeps the positions",
    "enable.idempotence": "it is on",
    "acks": "all replicas in sync acknowledge",
}
"""Options that cannot be given, and why."""
_SECRET: Final = re.compile(r"password$|secret$|^ssl\.key\.pem$")
_SOURCE: Final = re.compile(r"(.*)_(?:env|file)")
_TIMEOUT_S: Final = 30.0
_FIRST_STEP_S: Final = 2.0
T = TypeVar("T")


class KafkaAway(RmqioError):
    """The cluster did not answer, or answered that it can do so later."""

    retriable = True


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """A cluster and the options of clients, of librdkafka. Of passwords, they say where these are."""

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
                raise LocalError(f"the option {name} cannot be set: {_OURS[name]}")
            if _SECRET.search(name):
                raise LocalError(
                    f"the option {name} would travel with the pipeline: give {name}_env, an environment variable of "
                    f"each process that connects, or {name}_file"
                )
        found = cls(servers, tuple(sorted((config or {}).items())))
        found._sources()
        return found

    def __repr__(self) -> str:
        return f"Cluster({self.servers})"

    def _sources(self) -> dict[str, SecretSource]:
        """The sources of options, by their names: those of `sasl.password` are `sasl.password_env` and `.._file`."""
        given, found = dict(self.config), {}
        for name in given:
            if (option := _SOURCE.fullmatch(name)) is not None:
                base = option[1]
                source = SecretSource.of(base, given.get(f"{base}_env"), given.get(f"{base}_file"))
                assert source is not None
                found[base] = source
        return found

    def _options(self) -> dict[str, Any]:
        """The options of the client, with the passwords, which are read now. Raises `CredentialsError`."""
        plain = {name: value for name, value in self.config if _SOURCE.fullmatch(name) is None}
        return plain | {name: source.get() for name, source in self._sources().items()}

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return f"kafka://{self.servers}"

    def consumer(self, left_s: float | None = _TIMEOUT_S) -> Any:
        """Returns a consumer whose partitions are assigned, and which commits nothing. Raises `LocalError`.

        `left_s`: how long its work is tried again, for the log; None: until it succeeds.
        """
        from confluent_kafka import Consumer

        return self._made(Consumer, self.shown, left_s, {
            **self._options(),
            "bootstrap.servers": self.servers,
            "group.id": "rmqio",  # the client insists on one; no broker hears of it, since partitions are assigned
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # a gap is an error, and never a jump
            "enable.partition.eof": True,
        })  # fmt: skip

    def producer(self, name: str | None = None, left_s: float | None = None) -> Any:
        """Returns a producer that keeps the order of a partition, and whose retries double nothing.

        `name` is that of its work in the log. Raises `LocalError`.
        """
        from confluent_kafka import Producer

        options = {"linger.ms": 5, **self._options(), "bootstrap.servers": self.servers, "enable.idempotence": True}
        return self._made(Producer, name or self.shown, left_s, options)

    def _made(self, kind: Any, name: str, left_s: float | None, options: dict[str, Any]) -> Any:
        from confluent_kafka import KafkaException

        reports = Reports(name, left_s, options.get("error_cb"))
        try:
            client = _with_attributes(kind)({**options, "error_cb": reports}, logger=reports)
        except KafkaException as error:  # an option that does not exist, a file of certificates that cannot be read
            raise meaning_of(error, self.shown) from error
        client.reports = reports
        return client


def ask(client: Any, what: str, question: Callable[[float], T]) -> T:
    """Returns the answer of a cluster to a question, a function of a timeout in seconds.

    It ends early if no broker answers, and one has refused the client: alone, the client would only say that the
    transport failed.

    Raises `LocalError` and `KafkaAway`.
    """
    from confluent_kafka import KafkaException

    reports: Reports = client.reports
    reports.clear()
    until, step_s = time.monotonic() + _TIMEOUT_S, _FIRST_STEP_S
    while True:
        try:
            answer = question(max(0.001, min(step_s, until - time.monotonic())))
        except KafkaException as error:
            client.poll(0)
            if reports.refusal is not None:
                raise LocalError(f"{what}{reports}") from error
            if error.args[0].code() not in transient():
                raise meaning_of(error, what) from error
            if time.monotonic() >= until:
                raise KafkaAway(f"{what}: {error.args[0].str()}{reports}") from error
            reports.failed(reports.failure or error.args[0].str())
        else:
            reports.passed()
            return answer
        step_s *= 2  # a slow cluster answers a later one


@functools.cache
def _with_attributes(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (kind,), {})


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
