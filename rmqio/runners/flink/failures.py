"""Failures of user code on Flink: the error once, with the user's frames, in place of all that Beam and Flink say."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

import grpc

from rmqio.runners.errors import PipelineFailed
from rmqio.runners.tracebacks.failures import shows_all
from rmqio.runners.tracebacks.frames import is_of_user

_FROM_WORKER: Final = re.compile(r"Error received from SDK harness for instruction \d+: ")
_JAVA: Final = re.compile(r"\n\tat [\w.$<>/]+\(|\nCaused by: ")
_OF_NO_STEP: Final = re.compile(
    r"(?:Failed to rollback to checkpoint/savepoint(?P<path> \S+)\. Cannot map checkpoint/savepoint state for operator "
    r"|There is no operator for the state )(?P<operator>[0-9a-f]{32})"
)
_HEAD: Final = "Traceback (most recent call last):\n"
_JOINTS: Final = re.compile(
    "\n\n((?:During handling of the above exception, another exception occurred|"
    "The above exception was the direct cause of the following exception):)\n\n"
)
_FRAME: Final = re.compile(r'  File "(?P<file>[^"]+)", line \d+, in .*\n(?:    .*\n)*')
_WHERE: Final = re.compile(r" \[while running '(.*?)'\]\s*$", re.DOTALL)
_OUR_ERROR: Final = re.compile(r"rmqio\.(?:\w+\.)*\w+: ")
_OF_HARNESS: Final = 'sdk_worker.py", line'
_COMMON: Final = logging.getLogger("apache_beam.runners.common")
_WORKER: Final = logging.getLogger("apache_beam.runners.worker.sdk_worker")
_OF_INSTRUCTION: Final = "Error processing instruction"
_CHANNEL_CLOSED: Final = "Channel closed prematurely."
_DATA: Final = logging.getLogger("apache_beam.runners.worker.data_plane")


def failed(error: RuntimeError) -> RuntimeError:
    """Return the error of a job: if user code failed in a worker, one that has the user's frames only.

    Flink names a step whose state it cannot restore by a hash, and a flag by the name that its own command line has.
    """
    text = str(error)
    if unknown := _OF_NO_STEP.search(text):
        return PipelineFailed(
            f"the checkpoint or savepoint{unknown['path'] or ''} has the state of a step that this pipeline "
            f"lacks (Flink's operator {unknown['operator']}): give steps with state the labels that they had, and do "
            "not change --parallelism from or to 1; --allow_non_restored_state drops that state and keeps the rest"
        )
    found = _FROM_WORKER.search(text)
    return PipelineFailed(shortened(_JAVA.split(text[found.end() :])[0])) if found else error


def shortened(trace: str) -> str:
    """Return the transform's name and the error, then the user's frames, from a traceback as Python prints it."""
    pieces = _JOINTS.split(trace.strip() + "\n")
    ends: list[str] = []
    parts: list[str] = []
    where = ""
    for number in range(0, len(pieces), 2):
        frames = list(_FRAME.finditer(pieces[number]))
        end = pieces[number][frames[-1].end() if frames else 0 :].strip()
        if found := _WHERE.search(end):
            where = where or found[1]
            end = _WHERE.sub("", end)
        theirs = "".join(frame[0] for frame in frames if is_of_user(frame["file"]))
        part = f"{_HEAD}{theirs}{end}"
        if theirs and part not in parts:
            parts += [f"\n{pieces[number - 1]}\n", part] if parts else [part]
        ends.append(end)
    head = f"{where}: {ends[-1]}" if where else ends[-1]
    if parts or _OUR_ERROR.match(ends[-1]):
        return "\n".join([head, *parts])
    return "\n".join([head, trace.strip()])  # the failure is not in user code: all frames count


@contextlib.contextmanager
def once(*, is_stream: bool) -> Iterator[None]:
    """While a job runs, let the workers in this process say of each failure what `shortened` says.

    Say nothing of a batch job: Flink tries it again, and the error at its end says the same. A stream can go on for
    long after a failure.
    """
    if shows_all():
        yield
        return

    def short(record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_OF_INSTRUCTION) or not isinstance(record.args, tuple):
            return True
        record.msg, record.args = "a bundle failed: %s", (shortened(str(record.args[-1])),)
        return is_stream

    filters: list[tuple[logging.Logger, Callable[[logging.LogRecord], bool]]] = [
        (_COMMON, lambda record: not record.exc_info),
        (_WORKER, short),
        (logging.getLogger(), _is_no_job_message),
    ]
    for logger, each in filters:
        logger.addFilter(each)
    stderr = sys.stderr
    sys.stderr = _Stderr(stderr)
    try:
        yield
    finally:
        sys.stderr = stderr
        for logger, each in filters:
            logger.removeFilter(each)


def _is_no_job_message(record: logging.LogRecord) -> bool:
    return record.module != "portable_runner" or record.levelno < logging.ERROR


def _is_no_lost_connection(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], grpc.RpcError):
        return False
    return not (str(record.msg).startswith(_OF_INSTRUCTION) and _CHANNEL_CLOSED in record.getMessage())


def be_quiet_about_ctrl_c() -> None:
    """From now on, hide that the job was cancelled, and that workers in this process lose their connections.

    Beam's thread of job messages reports the one. Ctrl-C also ends the workers' server, which causes the other.
    """
    logging.getLogger().addFilter(_is_no_job_message)
    for logger in (_DATA, _WORKER):
        logger.addFilter(_is_no_lost_connection)
    sys.stderr = _Stderr(sys.stderr)
    before = threading.excepthook

    def hook(found: threading.ExceptHookArgs) -> None:
        if not isinstance(found.exc_value, grpc.RpcError):
            before(found)

    threading.excepthook = hook


class _Stderr:
    """Standard error without the tracebacks that Beam's harness prints before it logs them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drops_end = False

    def write(self, text: str) -> int:
        if text == "\n" and self._drops_end:
            self._drops_end = False
            return len(text)
        self._drops_end = text.startswith(_HEAD) and _OF_HARNESS in text and ", in _execute\n" in text
        return len(text) if self._drops_end else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
