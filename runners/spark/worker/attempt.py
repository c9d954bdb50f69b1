"""Whether what this task runs may have run before, told to whoever writes in it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pyspark import TaskContext

from rmqio.attempts import Attempt, running


def running_attempt(*, is_planned_before: bool = False, commits_together: bool = False) -> AbstractContextManager[None]:
    """Around the bundles of a task.

    Not seen: a stage that Spark runs again because the machine with its shuffle files is lost. It tells Python the
    number of a task's attempt, but not that of its stage's.

    Args:
      is_planned_before: whether an earlier run of the query had planned the micro-batch.
      commits_together: whether it is a micro-batch.
    """
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    return running(Attempt(is_planned_before or attempt > 0, commits_together))
