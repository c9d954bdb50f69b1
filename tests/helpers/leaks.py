"""Whether calls of C code leave memory or references behind."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Sequence


def assert_leaks_nothing(work: Callable[[], object], counted: Sequence[object], times: int = 300) -> None:
    """After many more calls no bytes are allocated, and `counted` are referred to as often as before."""
    for _ in range(20):  # caches get warm
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
    assert grown < 5_000, "one leaked object a call would be 10,000 and more"
    assert [sys.getrefcount(value) for value in counted] == references
