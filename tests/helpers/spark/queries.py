"""Waits for what streams of plain PySpark do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.helpers.waiting import told, until


def until_by(
    query: Any, condition: Callable[[], object], what: str, details: Callable[[], object] = lambda: ""
) -> None:
    """Waits for a condition while a query runs, and goes on as long as it has new micro-batches. Raises its error."""

    def batch() -> object:
        return query.lastProgress and query.lastProgress.batchId

    def goes_on() -> bool:
        if (failed := query.exception()) is not None:
            raise failed
        assert query.isActive or condition(), f"the query has ended before: {what}"
        return True

    until(
        condition,
        what,
        progress=batch,
        alive=[goes_on],
        details=lambda: f"{told(details)}; {query.lastProgress}",
        still_s=120,
    )
