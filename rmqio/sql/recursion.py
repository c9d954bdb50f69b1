"""Room for deep trees: a chain of operators is as deep as it is long, and Python stops at a thousand calls."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

_DEEPEST: Final = 20_000


@contextlib.contextmanager
def deep_trees() -> Iterator[None]:
    """Lets calls be nested more deeply in this block."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
