"""What can go wrong with the broker on this machine."""

from __future__ import annotations

from rmqio.errors import RmqioError


class LocalBrokerError(RmqioError):
    """The local broker cannot be fetched, started or used. The message says what, where and what to do about it."""
