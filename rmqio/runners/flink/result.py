"""A pipeline that runs on Flink: the job server reports its state and metrics, Flink ends it."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from apache_beam.runners.runner import PipelineResult, PipelineState

from rmqio.runners.flink.errors import FlinkError
from rmqio.runners.flink.failures import be_quiet_about_ctrl_c, failed, once
from rmqio.runners.flink.rest import FlinkJob, FlinkRest
from rmqio.runners.tracebacks.frames import hide_callers

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
