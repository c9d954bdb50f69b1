"""A server of its own in a JVM, from the files of a lock, that tests can kill and start again. Its data stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rmqio.local.artefacts import read_lock
from rmqio.local.fetch import fetch
from rmqio.local.processes import JavaProcess, Watchdog, find_java
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import until_up

SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_BOOT_S = 120.0


def jars_of(lock: str) -> list[Path]:
    """Returns the files of a lock beside this module, fetched the first time."""
    return fetch(read_lock(Path(__file__).with_name(f"{lock}.lock.json")))


class JavaServer:
    """A server in a temporary folder, on a free port of loopback."""

    title = "server"
    minimum_java = 17

    def __init__(self) -> None:
        self.java = str(find_java(minimum_major=self.minimum_java, program=self.title).executable)
        self.folder = Path(tempfile.mkdtemp(prefix="rmqio-server-"))
        self._watchdog = Watchdog(self.folder)
        self.port = reserved_port()
        self._process: JavaProcess | None = None

    def command(self) -> Sequence[str]:
        """Prepares the folder, and returns the command."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Returns whether the server can be used."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self._process = JavaProcess(self.title, self.folder, self._watchdog, self.command())
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        assert self._process is not None
        self._process.start()
        process = self._process
        until_up(
            self.answers,
            f"an answer of the {self.title}",
            alive=[lambda: process.pid() is not None],
            details=process.tail,
            still_s=_BOOT_S,
        )

    def kill(self) -> None:
        """Sends SIGKILL, and waits until the process is gone."""
        assert self._process is not None
        self._process.kill()

    def pause(self) -> None:
        """Suspends it: it keeps its port and its connections, but does not answer."""
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        """Resumes it after `pause`."""
        assert self._process is not None
        self._process.resume()

    def close(self) -> None:
        """Ends it, and removes its files. Idempotent."""
        if self._process is not None:
            self._process.kill()
        self._watchdog.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def not_as_root(folder: Path, command: Sequence[str]) -> list[str]:
    """Returns the command for a server that refuses to run as root; the folder becomes that user's."""
    if os.geteuid() != 0:
        return list(command)
    subprocess.run(["chown", "-R", "nobody", str(folder)], check=True)
    return ["setpriv", "--reuid=nobody", "--clear-groups", *command]
