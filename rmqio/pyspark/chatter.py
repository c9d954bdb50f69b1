"""Keeps PySpark's processes from telling the user's terminal what is of no interest there: that Spark has gone."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_GONE: Final = (BrokenPipeError, ConnectionResetError)


def quiet() -> None:
    """In a process of PySpark's own: no traceback where Spark has only closed the line.

    It does so with a worker that was idle for a minute, and the daemon prints what the worker then fails with: those
    that plan a data source are used at a query's start only, so each query would show some tracebacks a minute later.
    And it does so with the process that plans a stream, when the query ends.
    """
    main: Any = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name == _DAEMON:
        main.traceback.print_exc = told
    elif name == _PLANNER:
        sys.excepthook = _hook
        sys.unraisablehook = _unraisable


def told(print_exc: Callable[[], None] = traceback.print_exc) -> None:
    """`traceback.print_exc`, but for what only says that Spark has gone."""
    if not isinstance(sys.exc_info()[1], _GONE):
        print_exc()


def _hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, _GONE):
        sys.__excepthook__(kind, error, trace)


def _unraisable(found: Any) -> None:
    if not issubclass(found.exc_type, _GONE):
        sys.__unraisablehook__(found)
