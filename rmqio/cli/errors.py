"""What a command says when it cannot do what it was asked."""

from __future__ import annotations

from rmqio.errors import RmqioError


class CommandFailed(RmqioError):
    """The cluster is not as the command needs it. One line that says what, where and what to do; exit status 1."""
