"""Tracks silent servers: requests skip them, so that nothing waits for them, and probes detect when they answer."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.session import Call
from rmqio.errors import BrokerSilent, RmqioError
from rmqio.options import ClientOptions
from rmqio.wire.command import Command

_LOGGER = logging.getLogger("rmqio.client")

_PROBE_EVERY_S: Final = 1.0
_PROBE_WRITE_MS: Final = 50.0


@dataclass(slots=True)
class _Silence:
    since: float
    since_wall: float
    why: str
    probe: Command
    call: Call | None
    """The call in flight: a probe, or the request that was not answered in time."""
    next_probe: float
    is_late: bool
    """Whether `call` was not answered in time: its answer only triggers a probe."""


class Breaker:
    """A circuit breaker per address. Thread-safe; a forked child starts with all breakers closed.

    While open, `refusal` returns an error at once. It sends a probe at most once a second and does not wait for the
    answer: a later call takes it. Any answer to a probe, even an error, closes the breaker. A late answer to the
    request that opened it triggers a probe at once: a server that always answers late is not queried again and again.
    """

    def __init__(self, options: ClientOptions, pool: ConnectionPool, environment: Environment) -> None:
        self._options, self._pool, self._environment = options, pool, environment
        self._silent: dict[str, _Silence] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Breaker open for {sorted(self._silent)}>"

    def refusal(self, address: str, who: str) -> BrokerSilent | None:
        """Return the error for a server that must not be queried, or None. Never blocks, except for DNS.

        `who` names the server in the message.
        """
        if not self._silent:
            return None
        if self._pid != os.getpid():
            self._leave_to_parent()
        silence = self._silent.get(address)
        if silence is None:
            return None
        if self._lock.acquire(blocking=False):  # else another thread handles it
            try:
                if self._silent.get(address) is silence and self._answers(address, silence):
                    self.heard(address)
                    return None
            finally:
                self._lock.release()
        return self._error(address, who, silence)

    def trip(self, address: str, why: str, probe: Command, call: Call | None = None) -> None:
        """Open the breaker: requests skip the server from now on.

        Args:
          why: what the server failed to do, for the message.
          probe: a cheap request that changes nothing.
          call: a request still in flight to it; nothing else may wait for it.
        """
        if self._pid != os.getpid():
            self._leave_to_parent()
        now = self._environment.clock()
        new = _Silence(now, self._environment.wall_clock(), why, probe, call, now + _PROBE_EVERY_S, call is not None)
        held = self._silent.setdefault(address, new)
        if held is new:
            _LOGGER.warning("requests to %s fail at once until it answers a probe: %s", address, why)
        elif call is not None:
            call.forget()

    def heard(self, address: str) -> None:
        """Close the breaker: the server has answered."""
        silence = self._silent.pop(address, None) if self._silent else None
        if silence is None:
            return
        if silence.call is not None:
            silence.call.forget()
        lasted = self._environment.clock() - silence.since
        _LOGGER.warning("%s answers again after %.1f s", address, lasted)

    def clear(self) -> None:
        """Forget everything, because the client is closed."""
        self._silent = {}

    def _error(self, address: str, who: str, silence: _Silence) -> BrokerSilent:
        lasted = max(self._environment.clock() - silence.since, 0.0)
        since = datetime.fromtimestamp(silence.since_wall, UTC).isoformat(timespec="seconds")
        return BrokerSilent(
            f"{who} at {address} is silent for {lasted:.1f} s, since {since}: {silence.why}. It is probed every "
            f"{_PROBE_EVERY_S:g} s and queried again when it answers; until then its requests fail at once. "
            "Check whether it hangs or the network drops packets to it; restart it if it does not recover"
        )

    def _answers(self, address: str, silence: _Silence) -> bool:
        """Take an arrived answer and continue probing; return whether the server answers."""
        call = silence.call
        if call is not None:
            call.session.drain(until=call)
            if call.is_done:
                silence.call = None
                try:
                    call.result(0)
                except RmqioError as error:
                    silence.why = str(error)  # the connection broke: the next probe opens another one
                else:
                    if not silence.is_late:
                        return True
                    silence.next_probe = self._environment.clock()
                silence.is_late = False
            elif call.age_ms >= self._options.request_timeout_ms:
                silence.call, silence.is_late = None, False
                call.session.time_out(call, call.age_ms)  # closes a session that was already silent
        if silence.call is None and self._environment.clock() >= silence.next_probe:
            self._send_probe(address, silence)
        return False

    def _send_probe(self, address: str, silence: _Silence) -> None:
        next_probe = self._environment.clock() + _PROBE_EVERY_S
        try:
            connection = self._pool.connection(address)
            if not connection.begin():
                return  # still connecting: the next call checks again
            session = connection.session
            if session is not None:
                silence.call = session.start(silence.probe, _PROBE_WRITE_MS)
        except RmqioError as error:
            silence.why = str(error)
        silence.next_probe = next_probe

    def _leave_to_parent(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it at the fork
        self._silent = {}
        self._pid = os.getpid()
