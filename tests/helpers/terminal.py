"""A program on a pseudo-terminal of 80 columns: what is typed, and what is shown without escape sequences."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>])")
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
ENTER: Final = "\r"
UP: Final = "\x1b[A"


class Terminal:
    """A program on a terminal.

    Attributes:
      shown: what it has shown so far.
    """

    def __init__(self, process: int, descriptor: int) -> None:
        self._process, self._descriptor = process, descriptor
        self._raw = ""
        self._at = 0

    @property
    def shown(self) -> str:
        return _ESCAPE.sub("", self._raw).replace("\r\n", "\n").replace("\r", "")

    def type(self, text: str) -> None:
        """Types keys."""
        os.write(self._descriptor, text.encode())

    def run(self, statement: str, wanted: str, timeout_s: float = 60) -> str:
        """Types a statement and Enter, and returns what is shown until the text matches, and a prompt comes."""
        self.type(statement + ENTER)
        return self.wait_for(wanted, timeout_s) + self.wait_for(r"sql> ?$", timeout_s)

    def wait_for(self, pattern: str, timeout_s: float = 60) -> str:
        """Waits until what is shown since the last call matches, and returns it."""
        deadline = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.shown[self._at :], re.DOTALL)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown[self._at :]!r}"
            self._read(0.1)
        part = self.shown[self._at : self._at + found.end()]
        self._at += found.end()
        return part

    def interrupt(self, wanted: str = "interrupted", timeout_s: float = 60) -> None:
        """Types Ctrl-C, every three seconds, until what is shown matches: an editor of lines takes it as a key.

        An editor that starts is ended by it: on a busy machine it needs more than a second.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.wait_for(wanted, 3)
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            self.type(CTRL_C)

    def wait(self, timeout_s: float = 60) -> int:
        """Waits until the program ends, and returns its exit status."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._read(0.1)
            process, status = os.waitpid(self._process, os.WNOHANG)
            if process:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it goes on: {self.shown[-500:]!r}")

    def _read(self, timeout_s: float) -> None:
        if select.select([self._descriptor], [], [], timeout_s)[0]:
            with contextlib.suppress(OSError):  # the program has ended
                self._raw += os.read(self._descriptor, 1 << 16).decode("utf-8", "replace")


@contextlib.contextmanager
def on_terminal(command: Sequence[str], environment: Mapping[str, str], columns: int = 80) -> Iterator[Terminal]:
    """Runs a program on a terminal, and kills it at the end."""
    process, descriptor = pty.fork()
    if process == 0:
        os.execvpe(command[0], list(command), dict(environment))
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    try:
        yield Terminal(process, descriptor)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, 9)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
        os.close(descriptor)
