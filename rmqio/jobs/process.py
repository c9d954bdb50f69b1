"""A process of a job, with all processes that it starts, and its log, rotated by size."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The log of a job, rotated by size.

_MOST: Final = 10 << 20
_KEPT: Final = 2
_TAIL: Final = 8_000


class Log:
    """Appends to `path`; a full file becomes `path.1`, and that `path.2`. Only its owner can read it."""

    def __init__(self, path: Path, most: int = _MOST) -> None:
        self._path, self._most = path, most
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _opened(path)
        for older in map(self._older, range(1, _KEPT + 1)):
            if older.exists():
                _make_private(older)
        self._tail = b""

    def write(self, data: bytes) -> None:
        """Appends what the job has printed."""
        self._tail = (self._tail + data)[-_TAIL:]
        self._append(data)

    def note(self, text: str) -> None:
        """Appends a line of the supervisor."""
        gap = b"" if not self._tail or self._tail.endswith(b"\n") else b"\n"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._append(gap + b"".join(f"{now} -- {line}\n".encode() for line in text.splitlines()))

    def begin(self) -> None:
        """Forgets the tail: a process starts."""
        self._tail = b""

    def error(self) -> str:
        """Returns the line that says why the process has ended: the last one of ours, or else the last one."""
        lines = [each.strip() for each in self._tail.decode(errors="replace").splitlines() if each.strip()]
        ours = [each for each in lines if each.startswith("rmqio")]
        return (ours or lines or [""])[-1]

    @property
    def tail(self) -> str:
        """The end of what the process has printed."""
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        if self._file.tell() and self._file.tell() + len(data) > self._most:
            self._rotate()
        self._file.write(data)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(_KEPT, 0, -1):
            newer = self._path if number == 1 else self._older(number - 1)
            if newer.exists():
                os.replace(newer, self._older(number))
        self._file = _opened(self._path)

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _opened(path: Path) -> io.FileIO:
    """Opens a file to append to. What a job prints can quote its rows, and its text."""
    file = io.FileIO(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a")
    _make_private(file.fileno())
    return file


def _make_private(file: Path | int) -> None:
    """Takes the rights that an older version gave. A file of another owner keeps them: the job runs all the same."""
    with contextlib.suppress(PermissionError):
        os.chmod(file, 0o600)


def last_lines(path: Path, count: int) -> Iterator[bytes]:
    """Yields the last lines of a log, of the file before it too."""
    found: deque[bytes] = deque(maxlen=count)
    for each in (path.with_name(f"{path.name}.1"), path):
        if each.exists():
            with each.open("rb") as file:
                found.extend(file)
    yield from found


def follow(path: Path, pause_s: float = 0.2) -> Iterator[bytes]:
    """Yields what is appended from now on, also after a rotation; never ends."""
    file = path.open("rb")
    try:
        file.seek(0, os.SEEK_END)
        while True:
            if data := file.read(1 << 16):
                yield data
                continue
            try:
                is_same = os.path.samestat(os.stat(path), os.fstat(file.fileno()))
            except FileNotFoundError:
                is_same = True  # just being rotated
            if is_same:
                time.sleep(pause_s)
                continue
            if rest := file.read():
                yield rest
            file.close()
            file = path.open("rb")
    finally:
        file.close()


# How long the supervisor of jobs waits for what.


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds.

    Attributes:
      poll: between two looks at the folder.
      tick: the longest time until an ended process or a request is noticed.
      grace: how long a job may take to end by itself.
      hurry: how long it may take after a second interrupt, before it is killed.
      linger: how long processes that it has left behind may take to end.
      first_delay, most_delay: until the first restart, and at most; it doubles each time.
      steady: a job that has run for so long begins with the first delay again.
    """

    poll: float = 1.0
    tick: float = 0.2
    grace: float = 60.0
    hurry: float = 10.0
    linger: float = 5.0
    first_delay: float = 1.0
    most_delay: float = 300.0
    steady: float = 600.0

    def delay(self, failures: int) -> float:
        """Returns the delay after so many failures in a row."""
        return min(self.most_delay, self.first_delay * 2.0 ** min(max(failures - 1, 0), 32))


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
