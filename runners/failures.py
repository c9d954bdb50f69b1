"""Failures of pipelines in this process: the error of the user's code, once, without the frames of its callers."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import rmqio

T = TypeVar("T")

# Beam's calls of a DoFn, our own code, and the threads that both use. Beam's compiled modules name their files from
# `apache_beam` on.
_OURS: Final = "|".join(re.escape(str(Path(each).parent)) for each in (rmqio.__file__, __file__))
_CALLERS: Final = re.compile(
    rf"(^|/)(apache_beam/(runners/|transforms/core\.py|pipeline\.py)|concurrent/futures/|threading\.py)|^({_OURS})/"
)
_INTERRUPTED: Final = "KeyboardInterrupt"
# They log each failure of a DoFn with its traceback, and raise it as well.
_LOGGERS: Final = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")


def without_callers(run: Callable[[], T]) -> T:
    """Returns the result of `run`; what that raises, it raises with the frames of user code only.

    Beam raises a copy of an error, which names the transform, while it handles the error. The copy gets the causes of
    the first one. If Python's logging shows what Beam does (INFO), nothing is left out.
    """
    if logging.getLogger(_LOGGERS[0]).isEnabledFor(logging.INFO):
        return run()
    with _quiet():
        try:
            return run()
        except KeyboardInterrupt as error:
            failure: BaseException = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - raised again below
            is_interrupt = str(error).startswith(_INTERRUPTED)  # Ctrl-C inside a DoFn
            failure = KeyboardInterrupt() if is_interrupt else _cleaned(error)
    raise failure


def _cleaned(error: BaseException, seen: frozenset[int] = frozenset()) -> BaseException:
    first = error.__context__
    if first is not None and error.__cause__ is None and str(error).startswith(str(first)):
        error.__cause__ = first.__cause__ or (None if first.__suppress_context__ else first.__context__)
    cause = error.__cause__
    if cause is not None and id(cause) not in seen:
        _cleaned(cause, seen | {id(error)})
    error.__suppress_context__ = True
    return error.with_traceback(_of_users(error.__traceback__))


def _of_users(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is not of Beam's or our own callers."""
    frames = []
    while trace is not None:
        if not _CALLERS.search(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    found: TracebackType | None = None
    for each in reversed(frames):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


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
