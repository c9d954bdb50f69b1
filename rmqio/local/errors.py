"""What can go wrong with the broker on this machine, and with artefacts that are fetched by a lock."""

from __future__ import annotations

from rmqio.errors import RmqioError


class LocalBrokerError(RmqioError):
    """The local broker cannot be fetched, started or used. The message says what, where and what to do about it."""


class WrongContentError(LocalBrokerError):
    """A repository sent another file than the lock names. Not a reason to take an unverified one from elsewhere."""
