"""A program on a pseudo-terminal of 80 columns: what is typed, and what is shown without escape sequences."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tests.helpers.waiting import until

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

    def run(self, statement: str, wanted: str, still_s: float = 60) -> str:
        """Types a statement and Enter, and returns what is shown until the text matches, and a prompt comes."""
        self.type(statement + ENTER)
        return self.wait_for(wanted, still_s) + self.wait_for(r"sql> ?$", still_s)

    def wait_for(self, pattern: str, still_s: float = 60) -> str:
        """Waits until what is shown since the last call matches, and returns it."""
        return self._shown_by(lambda: self._read(0.1), pattern, still_s)

    def interrupt(self, wanted: str = "interrupted") -> None:
        """Types Ctrl-C, every three seconds, until what is shown matches: an editor of lines takes it as a key.

        An editor that starts is ended by it: on a busy machine it needs more than a second.
        """
        typed_at = time.monotonic()

        def type_again() -> None:
            nonlocal typed_at
            self._read(0.1)
            if time.monotonic() - typed_at >= 3:
                self.type(CTRL_C)
                typed_at = time.monotonic()

        self._shown_by(type_again, wanted, 60)

    def wait(self, still_s: float = 60) -> int:
        """Waits until the program ends, and returns its exit status."""

        def ended() -> tuple[int, ...]:
            self._read(0.1)
            process, status = os.waitpid(self._process, os.WNOHANG)
            return (status,) if process else ()

        (status,) = until(
            ended, "the end of the program", details=lambda: repr(self.shown[-500:]), still_s=still_s, pause_s=0
        )
        return os.waitstatus_to_exitcode(status)

    def wait_until(self, condition: Callable[[], object], what: str, still_s: float = 60) -> None:
        """Waits until a condition holds. Fails if the program ends first."""

        def holds() -> object:
            self._read(0.1)
            return condition()

        def goes_on() -> bool:
            return self._goes_on(condition, f"{what} in {self.shown}")

        until(holds, what, alive=[goes_on], details=lambda: self.shown, still_s=still_s, pause_s=0)

    def _shown_by(self, act: Callable[[], object], pattern: str, still_s: float) -> str:
        """Acts until what is shown since the last call matches, and returns it."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self.shown[self._at :], re.DOTALL)

        def is_shown() -> bool:
            if found() is None:
                act()
            return found() is not None

        def rest() -> str:
            return repr(self.shown[self._at :])

        def goes_on() -> bool:
            return self._goes_on(found, f"{pattern!r} in {rest()}")

        until(is_shown, repr(pattern), alive=[goes_on], details=rest, still_s=still_s, pause_s=0)
        match = found()
        assert match is not None
        part = self.shown[self._at : self._at + match.end()]
        self._at += match.end()
        return part

    def _goes_on(self, found: Callable[[], object], what: str) -> bool:
        """Returns whether the program runs. Fails if it has ended by itself before something was found."""
        if (ended := os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            return True
        while self._read(0):
            pass
        by_itself = ended.si_code == os.CLD_EXITED or ended.si_status == signal.SIGINT  # by a typed Ctrl-C
        if not found() and by_itself:
            raise AssertionError(f"it ended with {ended.si_status} before: {what}")
        return False

    def _read(self, pause_s: float) -> bool:
        """Returns whether something was shown."""
        if select.select([self._descriptor], [], [], pause_s)[0]:
            with contextlib.suppress(OSError):  # the program has ended
                data = os.read(self._descriptor, 1 << 16)
                self._raw += data.decode("utf-8", "replace")
                return bool(data)
        return False


@contextlib.contextmanager
def on_terminal(command: Sequence[str], environment: Mapping[str, str], columns: int = 80) -> Iterator[Terminal]:
    """Runs a program on a terminal, and kills it at the end."""
    process, descriptor = pty.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # in the background, the tests ignore it
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
