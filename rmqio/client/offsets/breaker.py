"""Which servers are silent: they are left alone, so that nobody waits for them, and probed until they answer."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rmqio.client.connections.call import Call
from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.environment import Environment
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
    """What is in flight: a probe, or the request that was not answered in time."""
    next_probe: float
    is_late: bool
    """Whether `call` was not answered in time: its answer is a reason to probe, and no more."""


class Breaker:
    """A circuit breaker by address. Thread-safe; a forked child begins with none open.

    Open: `refusal` gives an error at once. At most each second it sends a probe, for whose answer it does not wait: a
    later call takes it. Any answer to a probe closes the breaker, an error too. A late answer to what opened it has the
    server probed at once: one that always answers late is not asked again and again.
    """

    def __init__(self, options: ClientOptions, pool: ConnectionPool, environment: Environment) -> None:
        self._options, self._pool, self._environment = options, pool, environment
        self._silent: dict[str, _Silence] = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Breaker open for {sorted(self._silent)}>"

    def refusal(self, address: str, who: str) -> BrokerSilent | None:
        """Why a server is not to be asked; None: ask it. Never blocks (but for DNS). `who` is for the message."""
        if not self._silent:
            return None
        if self._pid != os.getpid():
            self._leave_to_parent()
        silence = self._silent.get(address)
        if silence is None:
            return None
        if self._lock.acquire(blocking=False):  # else another thread is looking after it
            try:
                if self._silent.get(address) is silence and self._answers(address, silence):
                    self.heard(address)
                    return None
            finally:
                self._lock.release()
        return self._error(address, who, silence)

    def trip(self, address: str, why: str, probe: Command, call: Call | None = None) -> None:
        """Leave a server alone from now on.

        Args:
          why: what it did not do, for the message.
          probe: a request that is cheap and changes nothing.
          call: one that is still in flight to it; nobody else may wait for this one.
        """
        if self._pid != os.getpid():
            self._leave_to_parent()
        now = self._environment.clock()
        new = _Silence(now, self._environment.wall_clock(), why, probe, call, now + _PROBE_EVERY_S, call is not None)
        held = self._silent.setdefault(address, new)
        if held is new:
            _LOGGER.warning("%s is left alone until it answers a probe: %s", address, why)
        elif call is not None:
            call.forget()

    def heard(self, address: str) -> None:
        """A server has answered."""
        silence = self._silent.pop(address, None) if self._silent else None
        if silence is None:
            return
        if silence.call is not None:
            silence.call.forget()
        lasted = self._environment.clock() - silence.since
        _LOGGER.warning("%s answers again after %.1f s", address, lasted)

    def clear(self) -> None:
        """Forget everything: the client is closed."""
        self._silent = {}

    def _error(self, address: str, who: str, silence: _Silence) -> BrokerSilent:
        lasted = max(self._environment.clock() - silence.since, 0.0)
        since = datetime.fromtimestamp(silence.since_wall, UTC).isoformat(timespec="seconds")
        return BrokerSilent(
            f"{who} at {address} is silent for {lasted:.1f} s, since {since}: {silence.why}. It is probed every "
            f"{_PROBE_EVERY_S:g} s and asked again when it answers; until then its requests fail at once. "
            "Look whether it hangs, or the network to it drops packets, and restart it if it does not return"
        )

    def _answers(self, address: str, silence: _Silence) -> bool:
        """Whether an answer has come; goes on with probing it."""
        call = silence.call
        if call is not None:
            call.session.drain(until=call)
            if call.is_done:
                silence.call = None
                try:
                    call.result(0)
                except RmqioError as error:
                    silence.why = str(error)  # the connection broke: the next probe makes another one
                else:
                    if not silence.is_late:
                        return True
                    silence.next_probe = self._environment.clock()
                silence.is_late = False
            elif call.age_ms >= self._options.request_timeout_ms:
                silence.call, silence.is_late = None, False
                call.session.time_out(call, call.age_ms)  # closes a session that was silent before
        if silence.call is None and self._environment.clock() >= silence.next_probe:
            self._send_probe(address, silence)
        return False

    def _send_probe(self, address: str, silence: _Silence) -> None:
        next_probe = self._environment.clock() + _PROBE_EVERY_S
        try:
            connection = self._pool.connection(address)
            if not connection.begin():
                return  # it is being connected: the next call looks again
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
