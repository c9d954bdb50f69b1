"""Errors of pipelines as the user sees them: the user's frames, without those of Beam and ours."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import rmqio
from rmqio.errors import RmqioError
from rmqio.runners.beam.portable import beam_runner_api_pb2, pickler
from rmqio.runners.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqio.runners.beam.in_process import StateWrite
    from rmqio.runners.beam.portable import CoderImpl, beam_fn_api_pb2


# Frames of tracebacks: those of user code, without those of Beam and of our own that called it.

_RUNNERS: Final = Path(__file__).parent
# Beam's calls of a DoFn, our own code, and the threads that both use. Beam's compiled modules name their files from
# `apache_beam` on.
_OURS: Final = re.escape(str(Path(rmqio.__file__).parent))
_CALLERS: Final = re.compile(
    rf"(^|/)(apache_beam/(runners/|transforms/core\.py|pipeline\.py)|concurrent/futures/|(threading|contextlib)\.py)|^{_OURS}/"
)
_OF_RUNNERS: Final = f"{_RUNNERS}/"
_HIDES: Final = "__tracebackhide__"


def of_users(trace: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback that is not of Beam's or our own callers."""
    frames = []
    while trace is not None:
        if is_of_user(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    found: TracebackType | None = None
    for each in reversed(frames):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def is_of_user(filename: str) -> bool:
    """Returns whether a frame's file is neither Beam's nor ours."""
    return _CALLERS.search(filename) is None


def passes_runners(trace: TracebackType | None) -> bool:
    """Returns whether a traceback has a frame of one of our runners."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(_OF_RUNNERS):
            return True
        trace = trace.tb_next
    return False


def hide_callers() -> None:
    """Marks the frames of Beam and of ours between here and the user's program.

    IPython and pytest leave such frames out. For a program without them, `show_users_frames` does.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if not is_of_user(frame.f_code.co_filename):
            frame.f_locals[_HIDES] = True
        frame = frame.f_back


# The error of a value that does not fit the coder of its state: names the state, the value and the user's line.

_MOST_CHARACTERS = 80


class StateNotEncodable(RmqioError, TypeError):
    """A state's coder cannot encode a value. Beam encodes state when a bundle ends, far from the line that wrote it."""

    def __init__(self, text: str, transform_id: str, state: str) -> None:
        super().__init__(text)
        self.transform_id = transform_id
        self.state = state


def not_encodable(
    key: beam_fn_api_pb2.StateKey, coder: CoderImpl, elements: Iterable[object], error: Exception
) -> StateNotEncodable:
    """Returns the error for the first of these values that cannot be encoded."""
    kind = getattr(key, key.WhichOneof("type"))
    name = getattr(kind, "user_state_id", "?")
    wrong = next((each for each in elements if not _fits(each, coder)), None)
    shown = f"{wrong!r:.{_MOST_CHARACTERS}} ({type(wrong).__name__})"
    used = type(coder).__name__.removesuffix("Impl")
    return StateNotEncodable(
        f"state {name!r}: its coder {used} cannot encode {shown}: {error}", getattr(kind, "transform_id", ""), name
    )


def in_process(write: StateWrite, error: Exception) -> StateNotEncodable | None:
    """Returns the error for what Beam's in-process runner could not write; None if all of it can be encoded."""
    elements = list(write.elements)
    if all(_fits(each, write.coder) for each in elements):
        return None
    found = declared(write.descriptor, not_encodable(write.key, write.coder, elements, error))
    transform = write.descriptor.transforms.get(found.transform_id)
    where = f" [while running {transform.unique_name!r}]" if transform is not None else ""
    return StateNotEncodable(f"{found}{where}", found.transform_id, found.state)


def declared(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, error: StateNotEncodable) -> StateNotEncodable:
    """Returns the error with the file and the line that declare the state, if their source can be found."""
    transform = descriptor.transforms.get(error.transform_id)
    if transform is None:
        return error
    payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
    try:
        code = pickler.loads(payload.do_fn.payload)[0].process.__code__
    except (AttributeError, IndexError):  # a callable of another kind
        return error
    # Not by `inspect`, which does not find the class of a program that was pickled by value.
    quoted = (f'"{error.state}"', f"'{error.state}'")
    lines = linecache.getlines(code.co_filename)
    line = next((n for n, text in enumerate(lines, 1) if any(each in text for each in quoted)), code.co_firstlineno)
    source = linecache.getline(code.co_filename, line).strip()
    text = f"{error}. The state is declared in {code.co_filename}, line {line}: {source}".removesuffix(": ")
    return StateNotEncodable(text, error.transform_id, error.state)


def _fits(value: object, coder: CoderImpl) -> bool:
    try:
        coder.encode(value)
    except Exception:  # noqa: BLE001 - whatever a coder raises, the value does not fit
        return False
    return True


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
    from rmqio.runners.beam.in_process import failed_state_write

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


# Shortens what Python shows when a runner's error ends a program: the user's frames, or one line.
#
# One line is enough for Ctrl-C, and for what this machine lacks.

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def show_users_frames() -> None:
    """Wraps `sys.excepthook`, once. Errors that have not passed through our runners are shown as before.

    The frames of Beam around ours are added after our code has raised: only here can they be left out.
    """
    if not isinstance(sys.excepthook, _Shown):
        sys.excepthook = _Shown(sys.excepthook)


class _Shown:
    def __init__(self, before: _Hook) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, NotReady) and not shows_all():
            print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr, flush=True)
            return
        if passes_runners(trace) and not shows_all():
            if isinstance(error, KeyboardInterrupt):
                trace, error.__cause__ = None, None  # which also suppresses what was handled at that moment
            else:
                trace = of_users(trace)
            error = error.with_traceback(trace)
        self._before(kind, error, trace)
