"""Runs a test in a process of its own: what it counts of the whole process is what it made."""

from __future__ import annotations

import functools
import multiprocessing
import warnings
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def in_own_process(test: Callable[P, None]) -> Callable[P, None]:
    """Runs the body of a test in a forked child, which has one thread. Fixtures are the parent's, and have none there.

    Earlier tests may leave threads in this process, which end, open files or take memory at any time.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        child = multiprocessing.get_context("fork").Process(target=test, args=args, kwargs=kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a parent's threads
            child.start()
        try:
            child.join()
        finally:
            child.kill()
        assert child.exitcode == 0, "its process wrote the error to stderr"

    return run
