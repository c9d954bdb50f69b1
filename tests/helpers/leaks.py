"""Checks whether calls of C code leak memory or references."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Sequence

from tests.helpers.own_process import in_own_process


@in_own_process
def assert_leaks_nothing(work: Callable[[], object], counted: Sequence[object], times: int = 300) -> None:
    """Asserts that many more calls allocate no bytes, and leave the reference counts of `counted` as they were."""
    for _ in range(20):  # warms up caches
        work()
    gc.collect()
    references = [sys.getrefcount(value) for value in counted]
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            work()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 5_000, "one leaked object per call would be 10,000 or more"
    assert [sys.getrefcount(value) for value in counted] == references
