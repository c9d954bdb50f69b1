"""Errors that runners have in common."""

from __future__ import annotations

from rmqio.errors import LocalError


class PipelineFailed(RuntimeError):
    """A pipeline failed. If user code failed, the message names the transform and has the worker's traceback."""


class NotReady(LocalError):
    """This machine lacks what the runner needs: a package, Java or a folder. The program needs no change.

    If it ends a program, Python shows its one line without a traceback.
    """
