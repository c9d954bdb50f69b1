"""The errors of the runners. Imports no Beam."""

from __future__ import annotations

from rmqio.errors import LocalError, RmqioError


class PipelineFailed(RuntimeError):
    """A pipeline failed. If user code failed, the message names the transform and has the worker's traceback."""


class NotReady(LocalError):
    """This machine lacks what the runner needs: a package, Java or a folder. The program needs no change.

    If it ends a program, Python shows its one line without a traceback.
    """


# The errors of Flink and of its job server.


class FlinkError(RmqioError):
    """Flink does not answer, or refuses. The message holds the request, its address and the answer."""


class FlinkSilent(FlinkError):
    """Flink does not answer: it is not reached, or the connection broke."""


class JobServerError(RmqioError):
    """The job server is not available, does not start or does not work. The message says what, where and what to do."""


class NoJava(JobServerError, NotReady):
    """There is no Java for the job server."""
