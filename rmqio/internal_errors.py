"""Exceptions of a class that nobody expects: each is a fault of rmqio, which fails one row and not the job.

What is not the row's fault goes on: a database or broker that is away (`RmqioError`, `OSError`), no memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from rmqio import telemetry
from rmqio.errors import RmqioError, SerdeError

NOT_OF_A_ROW: Final = (RmqioError, OSError, MemoryError)
"""What fails the bundle, so that the runner tries it again; but a `SerdeError` is of a row."""
_MOST_PLACES: Final = 1000
_LOGGER: Final = logging.getLogger(__name__)
_told: set[tuple[type[Exception], str, int]] = set()
"""Places whose stack is in the log of this process."""
counters: Final[list[Callable[[int], object]]] = []
"""Count with the recorder: that of Beam, where Beam is."""


def require_of_row(error: Exception) -> None:
    """Raises an error that the row did not cause, e.g. if a registry is down: good rows are no dead letters."""
    if isinstance(error, NOT_OF_A_ROW) and not isinstance(error, SerdeError):
        raise error


def internal_error(error: Exception, what: str) -> str:
    """Counts an unexpected exception in `internal_errors`, and returns what the bad row's error says of it.

    The first one at a place is logged with its stack.

    Args:
      what: what failed, for the log: "a row of SQL".

    Raises:
      Exception: the error itself, if the row did not cause it.
    """
    require_of_row(error)
    telemetry.record("internal_errors", (), 1)
    for each in counters:
        each(1)
    text = f"internal error: {type(error).__name__}: {error}"
    if (place := _place(error)) not in _told and len(_told) < _MOST_PLACES:
        _told.add(place)
        _LOGGER.error("%s: %s. This is a fault of rmqio: please report it", what, text, exc_info=error)
    return text


def _place(error: Exception) -> tuple[type[Exception], str, int]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error), "", 0
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
