"""Keeps PySpark's processes from printing tracebacks on the user's terminal that only say that Spark has gone."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_GONE: Final = (BrokenPipeError, ConnectionResetError)


def quiet() -> None:
    """Suppresses, in a process of PySpark, the traceback that follows when Spark closes the connection.

    Spark closes the connection to a worker that was idle for a minute, and the daemon prints the worker's error.
    Workers that plan a data source are used only when a query starts, so each query would print some tracebacks a
    minute later. Spark also closes the connection to the process that plans a stream when the query ends.
    """
    main: Any = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name == _DAEMON:
        main.traceback.print_exc = print_exc_unless_gone
    elif name == _PLANNER:
        sys.excepthook = _hook
        sys.unraisablehook = _unraisable


def print_exc_unless_gone(print_exc: Callable[[], None] = traceback.print_exc) -> None:
    """Calls `traceback.print_exc`, except for errors that only say that Spark has gone."""
    if not isinstance(sys.exc_info()[1], _GONE):
        print_exc()


def _hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, _GONE):
        sys.__excepthook__(kind, error, trace)


def _unraisable(found: Any) -> None:
    if not issubclass(found.exc_type, _GONE):
        sys.__unraisablehook__(found)
