"""Adds request signing and TLS to a client's environment, as its options require."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rmqio.client.connections.tls import context_of, tls_over
from rmqio.client.environment import Environment
from rmqio.security import Credentials, CredentialsError, CredentialsSource, Security

_LOGGER = logging.getLogger("rmqio.client")

REFRESH_S: Final = 5.0
"""Maximum age of credentials before their source is queried again: a file or function can return new ones."""

_said: set[str] = set()
"""Has no lock, because a fork could leave it locked forever: at worst two threads log the same warning."""


class Signer:
    """Returns the current credentials. Thread-safe: two threads can query the source at once."""

    def __init__(self, source: CredentialsSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._held: tuple[float, Credentials] | None = None
        self._is_failing = False

    def __call__(self) -> Credentials:
        """Raise `CredentialsError`, unless there were credentials before: those are kept, with a warning.

        A file can be read while it is half written, and a vault can be temporarily unavailable. If the old credentials
        are no longer valid, brokers report it.
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
                    _LOGGER.warning("keeping the previous credentials: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False
            held = self._held = (now, found)
        return held[1]


def _told(failure: Exception) -> CredentialsError:
    """Omit the text of third-party errors: it can quote the request and the secret used for it."""
    if isinstance(failure, CredentialsError):
        return failure
    return CredentialsError(f"the source of credentials failed with {type(failure).__name__}")


def require_usable(security: Security) -> None:
    """Ask for the credentials and read the files of TLS: before anything slow starts, or a server is asked.

    Raises `SetupError`, and what a function for credentials raises.
    """
    if security.source is not None:
        security.source.get()
    if security.tls is not None:
        context_of(security.tls)


def secured(environment: Environment, security: Security) -> Environment:
    """Return an environment with secured connections. Warns of unsafe settings once per process."""
    source, tls = security.source, security.tls
    if source is not None:
        environment = replace(environment, credentials=Signer(source, environment.clock))
        if tls is None:
            _warn("credentials are used without TLS: an eavesdropper can replay your requests and read messages")
    if tls is not None:
        if tls.insecure:
            _warn(
                "TLS is insecure: certificates are not verified, so anyone on the network path can read and change "
                "everything"
            )
        environment = replace(environment, connect=tls_over(environment.connect, tls))
    return environment


def forget_warnings() -> None:
    """Log the warnings again; for tests."""
    _said.clear()


def _warn(what: str) -> None:
    if what not in _said:
        _said.add(what)
        _LOGGER.warning("%s", what)
