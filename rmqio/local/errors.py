"""Errors of the local broker and of artefacts that are fetched by a lock."""

from __future__ import annotations

from rmqio.errors import RmqioError


class LocalBrokerError(RmqioError):
    """The local broker cannot be fetched, started or used. The message says what failed, where, and what to do."""


class WrongContentError(LocalBrokerError):
    """A repository sent another file than the lock names. That never justifies an unverified file from elsewhere."""
