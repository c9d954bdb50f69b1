"""What can go wrong with Flink on this machine."""

from __future__ import annotations

from rmqio.errors import RmqioError


class FlinkError(RmqioError):
    """Flink does not answer, or refuses. The message says what was asked of whom, and what it said."""


class JobServerError(RmqioError):
    """The job server cannot be had, started or used. The message says what, where and what to do about it."""
