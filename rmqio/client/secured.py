"""A client's outside world with signed requests and TLS, as its options ask for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rmqio.client.environment import Environment
from rmqio.client.tls import tls_over
from rmqio.security import Credentials, CredentialsSource, Security

_LOGGER = logging.getLogger("rmqio.client")

REFRESH_S: Final = 5.0
"""How old credentials get before their source is asked again: a file or a function may have new ones."""

_said: set[str] = set()
_lock = threading.Lock()


class Signer:
    """The credentials of now. Thread-safe: two threads may ask the source at once."""

    def __init__(self, source: CredentialsSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._held: tuple[float, Credentials] | None = None

    def __call__(self) -> Credentials:
        """Raises `CredentialsError`."""
        held = self._held
        now = self._clock()
        if held is None or now - held[0] > REFRESH_S:
            held = self._held = (now, self._source.get())
        return held[1]


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
    with _lock:
        _said.clear()


def _warn(what: str) -> None:
    with _lock:
        if what in _said:
            return
        _said.add(what)
    _LOGGER.warning("%s", what)
