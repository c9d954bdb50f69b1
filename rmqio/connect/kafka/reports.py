"""The reports of a client of librdkafka: why it is refused, why it cannot connect, and the lines that it would log."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final

from rmqio.connect.sink.outage import EVERY_S, Outage, outage_of

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
