"""The errors of Flink and of its job server."""

from __future__ import annotations

from rmqio.errors import RmqioError
from rmqio.runners.errors import NotReady


class FlinkError(RmqioError):
    """Flink does not answer, or refuses. The message holds the request, its address and the answer."""


class FlinkSilent(FlinkError):
    """Flink does not answer: it is not reached, or the connection broke."""


class JobServerError(RmqioError):
    """The job server is not available, does not start or does not work. The message says what, where and what to do."""


class NoJava(JobServerError, NotReady):
    """There is no Java for the job server."""
