"""A client's outside world with signed requests and TLS, as its options ask for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rmqio.client.connections.tls import tls_over
from rmqio.client.environment import Environment
from rmqio.security import Credentials, CredentialsError, CredentialsSource, Security

_LOGGER = logging.getLogger("rmqio.client")

REFRESH_S: Final = 5.0
"""How old credentials get before their source is asked again: a file or a function may have new ones."""

_said: set[str] = set()
"""Without a lock, which a fork could leave locked for ever: at worst two threads say it both."""


class Signer:
    """The credentials of now. Thread-safe: two threads may ask the source at once."""

    def __init__(self, source: CredentialsSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._held: tuple[float, Credentials] | None = None
        self._is_failing = False

    def __call__(self) -> Credentials:
        """Raises `CredentialsError`, unless there were credentials before: those are kept, with a warning.

        A file may be half written when it is read, and a vault away for a while. If they hold no more, brokers say so.
        """
        held = self._held
        now = self._clock()
        if held is None or now - held[0] > REFRESH_S:
            try:
                found = self._source.get()
            except Exception as failure:  # noqa: BLE001  # a source may be a user's own
                error = _told(failure)
                if held is None:
                    raise error from None
                found = held[1]
                if not self._is_failing:
                    _LOGGER.warning("the credentials of before are used on: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False
            held = self._held = (now, found)
        return held[1]


def _told(failure: Exception) -> CredentialsError:
    """Without the words of who is not of ours: they may quote what was asked for, and with what."""
    if isinstance(failure, CredentialsError):
        return failure
    return CredentialsError(f"the source of credentials failed with {type(failure).__name__}")


def secured(environment: Environment, security: Security) -> Environment:
    """The environment in which connections are secured. What is unsafe is warned of, once in a process."""
    source, tls = security.source, security.tls
    if source is not None:
        environment = replace(environment, credentials=Signer(source, environment.clock))
        if tls is None:
            _warn("credentials are used without TLS: who can listen can send your requests again, and read messages")
    if tls is not None:
        if tls.insecure:
            _warn("TLS is insecure: certificates are not verified, so anybody on the way can read and change all")
        environment = replace(environment, connect=tls_over(environment.connect, tls))
    return environment


def forget_warnings() -> None:
    """Say them again; for tests."""
    _said.clear()


def _warn(what: str) -> None:
    if what not in _said:
        _said.add(what)
        _LOGGER.warning("%s", what)
