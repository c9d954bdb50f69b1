"""The error of a command that cannot do what was asked."""

from __future__ import annotations

from rmqio.errors import RmqioError


class CommandFailed(RmqioError):
    """The state of the cluster does not permit the command. One line says what, where and what to do; exit status 1."""
