"""The error of a pipeline that failed on a runner with workers of its own."""

from __future__ import annotations


class PipelineFailed(RuntimeError):
    """A pipeline failed. If user code failed, the message names the transform and has the worker's traceback."""
