"""A pipeline that runs on Flink: its state and metrics are the job server's to tell, its end is Flink's."""

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
from rmqio.runners.flink.rest import FlinkJob, FlinkRest

_POLL_S: Final = 0.1
_CANCEL_TIMEOUT_S: Final = 60.0
_ASKER_TIMEOUT_S: Final = 5.0

_log = logging.getLogger(__name__)


class FlinkResult(PipelineResult):
    """Of `FlinkRunner`.

    Args:
      beams: the result of Beam's runner.
      rest: where Flink answers; None: only the job server knows.
      name: of the job, as Flink lists it.
      ended: called once, when the job has ended.
      others: ids of the jobs that Flink had before this one, which may have the same name.
      goes_with_job: whether `rest` ends with the job, and the job by being stopped only.
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
    ) -> None:
        super().__init__(PipelineState.RUNNING)
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
        """Blocks until the job has ended, or for `duration` ms. Raises RuntimeError with what it failed with.

        While the main thread waits, SIGTERM does what Ctrl-C does.
        """
        if self._cancelled.is_set():
            return str(self._state)
        try:
            with _terminable():
                self._take(self._beams.wait_until_finish(duration))
        except RuntimeError:
            if self._cancelled.is_set():  # by another thread, or by Flink's own means
                return str(self._state)
            self._take(PipelineState.FAILED)
            raise
        return str(self._state)

    def cancel(self) -> str:
        """End the job, in Flink too, and wait until it has. What checkpoints it has stay where they are.

        Beam's own way reports a job as cancelled that Flink goes on with. Raises `FlinkError`.
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
        """End the job with a savepoint of its state, and give the savepoint's URL, for `--savepoint_path`.

        Args:
          folder: URL of the folder in which it is made; None: where the configuration of the cluster says.
          drain: let all windows fire first; the job cannot be resumed then.

        Raises `FlinkError`: Flink does not answer, or there is no such job, or no savepoint; then the job goes on.
        """
        job = self._find()
        if job is None or self.rest is None:
            raise FlinkError(f"Flink does not know a running job {self.name!r}: it has ended, or has not begun yet")
        path = self.rest.stop(job.id, folder, drain=drain)
        self._cancelled.set()
        self._await_end(job.id)
        self._take(PipelineState.DONE)
        return path

    def _find(self) -> FlinkJob | None:
        """Flink's job. Until the job server has submitted it there is none, which may take some seconds.

        Raises `FlinkError`: there are several that it may be.
        """
        if self.rest is None:
            return None
        until = time.monotonic() + _CANCEL_TIMEOUT_S
        while time.monotonic() < until and not PipelineState.is_terminal(self.state):
            try:
                those = (each for each in self.rest.jobs() if each.id not in self._others and not each.has_ended)
                found = [each for each in those if each.name == self.name]
            except FlinkError as error:
                _log.debug("%s", error)  # the embedded one begins with the job
                found = []
            if len(found) > 1:
                ids = ", ".join(each.id for each in found)
                raise FlinkError(f"several jobs are named {self.name!r}: {ids}; say which, to rmqio.runners.flink")
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
                return  # the embedded one goes with its job
            time.sleep(_POLL_S)

    def _await_asker(self) -> None:
        """Who stopped the job through Flink has yet to ask where the savepoint is; Flink waits for that, then goes."""
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
    """SIGTERM by default ends the process at once: on a cluster the job would go on, here its folder would stay."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
