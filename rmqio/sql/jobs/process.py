"""A process of a job, with all processes that it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from rmqio.sql.jobs.timing import Timing

_CHUNK: Final = 1 << 16
_MOST_CHUNKS: Final = 64
"""At a time: a job that prints without end does not hold up the others."""


class Process:
    """Runs a command in a session of its own: Ctrl-C on the terminal is for the supervisor, which passes it on.

    Args:
      command: the command.
      take: takes what it prints, on either stream.
      timing: how patient `tick` is.
      clock: returns seconds.
      descriptors: what the process inherits.
    """

    def __init__(
        self,
        command: Sequence[str],
        take: Callable[[bytes], None],
        timing: Timing,
        clock: Callable[[], float],
        descriptors: Sequence[int] = (),
    ) -> None:
        self._take, self._timing, self._clock = take, timing, clock
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=descriptors,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._asked = 0
        self._asked_at = 0.0
        self._ended_at: float | None = None
        self._is_closed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> int | None:
        """The descriptor to wait for; None: nothing more is printed."""
        return None if self._is_closed else self._output.fileno()

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to end."""
        return self._asked > 0

    def ask(self) -> None:
        """Asks the process to end: a stream finishes and commits its micro-batch."""
        if not self._asked:
            self.press()

    def press(self) -> None:
        """Asks again, which is more urgent each time: the third time kills."""
        self._asked += 1
        self._asked_at = self._clock()
        if self._asked > 2:
            self._kill()
        elif self._ended_at is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def tick(self) -> int | None:
        """Returns the exit status once all of it has ended. Takes what was printed, and loses patience in time."""
        self._pump()
        now = self._clock()
        if self._ended_at is None:
            status = self._process.poll()
            if status is None:
                patience = (0.0, self._timing.grace, self._timing.hurry, self._timing.hurry)[min(self._asked, 3)]
                if self._asked and now - self._asked_at > patience:
                    self.press()
                return None
            self._ended_at = now
        if self._has_left_some():
            if now - self._ended_at < self._timing.linger:
                return None
            self._kill()
        self._pump()
        self._close()
        return int(self._process.returncode)

    def _pump(self) -> None:
        for _ in range(_MOST_CHUNKS):
            if self._is_closed:
                return
            try:
                data = os.read(self._output.fileno(), _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._close()
                return
            self._take(data)

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._output.close()

    def _has_left_some(self) -> bool:
        """Whether processes of the session are left, such as Spark's: their group keeps its number until then."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
