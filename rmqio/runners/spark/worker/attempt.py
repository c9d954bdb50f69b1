"""Informs the transforms that write in a task whether the task may repeat work of an earlier attempt."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pyspark import TaskContext

from rmqio.repeats.attempts import Attempt, running


def running_attempt(*, is_planned_before: bool = False, commits_together: bool = False) -> AbstractContextManager[None]:
    """Returns a context manager for the bundles of a task, which sets the attempt that transforms see.

    It does not detect that Spark runs a stage again because the machine with its shuffle files is lost. Spark gives
    Python the attempt number of a task, but not that of its stage.

    Args:
      is_planned_before: whether an earlier run of the query had already planned the micro-batch.
      commits_together: whether the task belongs to a micro-batch.
    """
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    return running(Attempt(is_planned_before or attempt > 0, commits_together))
