"""A pipeline that runs on Flink: the job server reports its state and metrics, Flink ends it."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, TextIO

import grpc
from apache_beam.runners.runner import PipelineResult, PipelineState

from rmqio.runners.errors import FlinkError, PipelineFailed
from rmqio.runners.flink.rest import FlinkJob, FlinkRest
from rmqio.runners.tracebacks import hide_callers, is_of_user, shows_all

# Failures of user code on Flink: the error once, with the user's frames, in place of all that Beam and Flink say.

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


_POLL_S: Final = 0.1
_CANCEL_TIMEOUT_S: Final = 60.0
_ASKER_TIMEOUT_S: Final = 5.0

_log = logging.getLogger(__name__)


class FlinkResult(PipelineResult):
    """The result of `FlinkRunner`.

    Args:
      beams: the result of Beam's runner.
      rest: where Flink answers; None: only the job server knows the job.
      name: the name of the job, as Flink lists it.
      ended: called once when the job has ended.
      others: ids of the jobs that Flink had before this one, which may have the same name.
      goes_with_job: whether `rest` ends with the job, and the job only by being stopped.
      is_stream: whether the job goes on after a failure.
    """

    def __init__(
        self,
        beams: Any,
        rest: FlinkRest | None,
        name: str,
        ended: Callable[[], None],
        *,
        others: Collection[str] = (),
        goes_with_job: bool = False,
        is_stream: bool = False,
    ) -> None:
        super().__init__(PipelineState.RUNNING)
        self._is_stream = is_stream
        self._others = frozenset(others)
        self._goes_with_job = goes_with_job
        self._beams, self.rest, self.name = beams, rest, name
        self._on_end: Callable[[], None] | None = ended
        self._cancelled = threading.Event()

    @property
    def state(self) -> str:
        if not self._cancelled.is_set() and not PipelineState.is_terminal(self._state):
            self._take(str(self._beams.state))
        return str(self._state)

    def metrics(self) -> Any:
        return self._beams.metrics()

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Block until the job has ended, or for `duration` ms. Raises RuntimeError with the cause of a failure.

        Ctrl-C cancels the job, and so does SIGTERM while the main thread waits.

        Raises:
          PipelineFailed: user code failed. The message has its traceback.
        """
        if self._cancelled.is_set():
            return str(self._state)
        try:
            with _terminable(), once(is_stream=self._is_stream):
                self._take(self._beams.wait_until_finish(duration))
        except KeyboardInterrupt:
            be_quiet_about_ctrl_c()
            try:
                self.cancel()
            except FlinkError as error:
                _log.warning("Ctrl-C: the job was not cancelled, and may still run in Flink: %s", error)
            raise
        except RuntimeError as error:
            if self._cancelled.is_set():  # by another thread, or through Flink itself
                return str(self._state)
            self._take(PipelineState.FAILED)
            hide_callers()
            raise failed(error) from None
        return str(self._state)

    def cancel(self) -> str:
        """Cancel the job, in Flink too, and wait until it has ended. Its checkpoints stay where they are.

        Beam's own `cancel` reports a job as cancelled that Flink continues. Raises `FlinkError`.
        """
        if PipelineState.is_terminal(self.state):
            return str(self._state)
        job = self._find()
        if PipelineState.is_terminal(self.state):  # meanwhile
            return str(self._state)
        self._cancelled.set()
        if job is not None and self.rest is not None:
            self.rest.cancel(job.id)
            self._await_end(job.id)
        self._beams.cancel()
        self._take(PipelineState.CANCELLED)
        return str(self._state)

    def stop_with_savepoint(self, folder: str | None = None, *, drain: bool = False) -> str:
        """Stop the job with a savepoint of its state, and return the savepoint's URL, for `--savepoint_path`.

        Args:
          folder: URL of the folder for the savepoint; None: as the cluster is configured.
          drain: fire all windows first; the job cannot be resumed then.

        Raises `FlinkError` if Flink does not answer, has no such job, or makes no savepoint; then the job continues.
        """
        job = self._find()
        if job is None or self.rest is None:
            raise FlinkError(f"Flink has no running job {self.name!r}: it has ended, or has not started yet")
        path = self.rest.stop(job.id, folder, drain=drain)
        self._cancelled.set()
        self._await_end(job.id)
        self._take(PipelineState.DONE)
        return path

    def _find(self) -> FlinkJob | None:
        """Return Flink's job. Waits until the job server has submitted it, which can take some seconds.

        Raises `FlinkError` if several jobs match.
        """
        if self.rest is None:
            return None
        until = time.monotonic() + _CANCEL_TIMEOUT_S
        while time.monotonic() < until and not PipelineState.is_terminal(self.state):
            try:
                those = (each for each in self.rest.jobs() if each.id not in self._others and not each.has_ended)
                found = [each for each in those if each.name == self.name]
            except FlinkError as error:
                _log.debug("%s", error)  # the embedded Flink starts with the job
                found = []
            if len(found) > 1:
                ids = ", ".join(each.id for each in found)
                raise FlinkError(f"several jobs are named {self.name!r}: {ids}; end one by id with rmqio.runners.flink")
            if found:
                return found[0]
            time.sleep(_POLL_S)
        return None

    def _await_end(self, job_id: str) -> None:
        until = time.monotonic() + _CANCEL_TIMEOUT_S
        while time.monotonic() < until and self.rest is not None:
            try:
                if all(each.has_ended for each in self.rest.jobs() if each.id == job_id):
                    return
            except FlinkError:
                return  # the embedded Flink ends with its job
            time.sleep(_POLL_S)

    def _await_asker(self) -> None:
        """Wait until whoever stopped the job through Flink has asked for its savepoint; Flink ends after that."""
        until = time.monotonic() + _ASKER_TIMEOUT_S
        while time.monotonic() < until and self.rest is not None:
            try:
                self.rest.overview()
            except FlinkError:
                return
            time.sleep(_POLL_S)

    def _take(self, state: str) -> None:
        self._state = state
        if PipelineState.is_terminal(state) and self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            if state == PipelineState.DONE and self._goes_with_job and not self._cancelled.is_set():
                self._await_asker()
            on_end()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM interrupt. By default it ends the process at once: a cluster's job would continue, a folder stay."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
