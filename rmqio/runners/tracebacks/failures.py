"""Failures of pipelines in this process: the error of the user's code, once, without the frames of its callers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from rmqio.runners.tracebacks.frames import hide_callers, of_users
from rmqio.runners.tracebacks.state_errors import in_process

T = TypeVar("T")

_INTERRUPTED: Final = "KeyboardInterrupt"
# They log each failure of a DoFn with its traceback, and raise it as well.
_LOGGERS: Final = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")


def without_callers(run: Callable[[], T]) -> T:
    """Returns the result of `run`; what that raises, it raises with the frames of user code only.

    Beam raises a copy of an error, which names the transform, while it handles the error. The copy gets the causes of
    the first one. If Python's logging shows what Beam does (INFO), nothing is left out.
    """
    if shows_all():
        return run()
    with _quiet():
        try:
            return run()
        except KeyboardInterrupt as error:
            failure: BaseException = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - raised again below
            is_interrupt = str(error).startswith(_INTERRUPTED)  # Ctrl-C inside a DoFn
            failure = KeyboardInterrupt() if is_interrupt else _of_state(error) or _cleaned(error)
    hide_callers()
    raise failure


def shows_all() -> bool:
    """Returns whether the user wants to see what Beam does, and with it all frames."""
    return logging.getLogger(_LOGGERS[0]).isEnabledFor(logging.INFO)


def _of_state(error: Exception) -> BaseException | None:
    """Returns the error that names the state, if its coder could not encode a value. The user's line is in its text."""
    from rmqio.runners.beam.in_process import (
        failed_state_write,  # imports slowly, which other runners need not wait for
    )

    write = failed_state_write(error)
    return in_process(write, error) if write is not None else None


def _cleaned(error: BaseException, seen: frozenset[int] = frozenset()) -> BaseException:
    first = error.__context__
    if first is not None and error.__cause__ is None and str(error).startswith(str(first)):
        error.__cause__ = first.__cause__ or (None if first.__suppress_context__ else first.__context__)
    cause = error.__cause__
    if cause is not None and id(cause) not in seen:
        _cleaned(cause, seen | {id(error)})
    error.__suppress_context__ = True
    return error.with_traceback(of_users(error.__traceback__))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_no_failure)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_failure)


def _is_no_failure(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR or not (record.exc_info or record.exc_text)
