"""A database server that tests can kill and start again. Its data stay."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from tests.helpers.waiting import at_most, until_up


class Server:
    """A server process. `launch` starts it; `answers` says whether it can be used."""

    def __init__(self, url: str, launch: Callable[[], subprocess.Popen[bytes]], answers: Callable[[], bool]) -> None:
        self.url = url
        self._launch, self._answers = launch, answers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, log: Callable[[], str] = str) -> None:
        """Starts it, and waits until it answers. `log`: its output, for the message of a failure."""
        process = self._process = self._launch()

        def answers() -> bool:
            nonlocal process
            if self._answers():
                return True
            if process.poll() is not None:  # after a kill, PostgreSQL's children hold its memory for a moment
                time.sleep(0.2)
                process = self._process = self._launch()
            return False

        until_up(answers, f"an answer of the server of {self.url}", details=log)

    def kill(self) -> None:
        """Sends SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(at_most(30))

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(at_most(60))
