"""A Java process: its command, its log, and the signals that fault tests need."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rmqio.local.errors import LocalBrokerError
from rmqio.local.processes.java import Java
from rmqio.local.processes.watchdog import Watchdog

_TAIL_LINES: Final = 30
_STOPS_IN_S: Final = 5.0
# Its arguments are a process, seconds, and a folder.
_KILL_LATER: Final = """
left=$2
while kill -0 "$1" 2>/dev/null && [ $left -gt 0 ]; do sleep 1; left=$((left - 1)); done
[ $left -gt 0 ] || kill -9 "-$1" 2>/dev/null
rm -rf -- "$3"
"""
_EXCEPTION: Final = re.compile(r"^(Caused by: )?[\w.$]+(Exception|Error)\b", re.MULTILINE)


class JavaProcess:
    """Starts, signals and reaps one JVM, which can be restarted after it ended. Its files are in `folder`."""

    def __init__(self, title: str, folder: Path, watchdog: Watchdog, command: Sequence[str]) -> None:
        self.title = title
        self.output, self.log = folder / "output.txt", folder / "log.txt"
        self._folder, self._watchdog, self._command = folder, watchdog, command
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._output_before = 0

    def __repr__(self) -> str:
        pid = self.pid()
        state = "not running" if pid is None else f"pid {pid}{', paused' if self._paused else ''}"
        return f"<{self.title}, {state}>"

    def pid(self) -> int | None:
        """Return the process id while it runs; None before the start and after the end, which is noticed here."""
        if self._process is None:
            return None
        if self._process.poll() is not None:
            self._watchdog.forget(self._process.pid)
            self._process = None
            self._paused = False
            return None
        return self._process.pid

    def start(self) -> None:
        """Start it. Raises LocalBrokerError if it is already running or the command cannot be executed."""
        if (pid := self.pid()) is not None:
            raise LocalBrokerError(f"the {self.title} is already running (pid {pid})")
        self._output_before = self.output.stat().st_size if self.output.is_file() else 0
        self._process = self._watchdog.spawn(self._command, cwd=self._folder, output=self.output)

    def pause(self) -> None:
        """Send SIGSTOP: once this returns, it keeps its port and connections, but answers nothing."""
        self._signal(signal.SIGSTOP)
        self._paused = True
        deadline = time.monotonic() + _STOPS_IN_S
        while not _is_stopped(self.pid()) and time.monotonic() < deadline:
            time.sleep(0.005)

    def resume(self) -> None:
        """Send SIGCONT. No effect unless paused."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def kill(self) -> None:
        """Send SIGKILL, paused or not, and wait until it is gone. No effect if it is not running."""
        if self.pid() is not None and self._process is not None:
            self._process.kill()
            self._process.wait()
            self.pid()  # notices that it has ended

    def terminate(self, timeout_s: float) -> None:
        """Send SIGTERM, so that it saves its state; SIGKILL if that takes longer than `timeout_s`."""
        if self.pid() is not None and self._process is not None:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            self.kill()

    def leave(self, within_s: int) -> None:
        """Send SIGTERM and return. If it has not ended within that time, it is killed with its group, by a shell that
        also removes its folder. It outlives this process.
        """
        if self.pid() is not None and self._process is not None:
            self.resume()
            self._process.terminate()
            self._watchdog.forget(self._process.pid)
            command = ["/bin/sh", "-c", _KILL_LATER, "sh", str(self._process.pid), str(within_s), str(self._folder)]
            quiet = subprocess.DEVNULL
            shell = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True)
            for each in (self._process, shell):
                each.returncode = 0  # nobody waits for it; without this, Python warns that it is still running
            self._process = None

    def has_failed(self) -> bool:
        """Return whether it ended, or printed an exception since its start, which it does only when about to end."""
        return self.pid() is None or _EXCEPTION.search(self._text(self.output, self._output_before)) is not None

    def tail(self) -> str:
        """Return the end of its log and output, for an error message. Stack frames are omitted."""
        parts = []
        for path in (self.log, self.output):
            lines = [line for line in self._text(path).splitlines() if not line.startswith(("\tat ", "\t... "))]
            if lines:
                parts.append("\n".join([f"--- end of {path}:", *lines[-_TAIL_LINES:]]))
        return "\n".join(parts) or "(no log)"

    @staticmethod
    def _text(path: Path, start: int = 0) -> str:
        return path.read_bytes()[start:].decode(errors="replace") if path.is_file() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.pid() is None or self._process is None:
            raise LocalBrokerError(f"the {self.title} is not running: start it with restart()")
        self._process.send_signal(number)


def _is_stopped(pid: int | None) -> bool:
    """Return whether all threads are stopped, which takes a moment on a busy machine; True where this is unknown."""
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    return all(state == "T" for state in states)


def java_options(java: Java, *, heap_mb: int, throughput: bool) -> list[str]:
    """Return JVM options: a bounded heap, and reflective access for RocketMQ and its libraries.

    `throughput` is for the broker: the collector of RocketMQ's own start scripts and full compilation. The name server
    answers few requests, so it should be small and start quickly.
    """
    options = [f"-Xmx{heap_mb}m", "-XX:-OmitStackTraceInFastThrow", "-Dfile.encoding=UTF-8"]
    options += ["-XX:+UseG1GC"] if throughput else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    if java.major >= 9:
        options += [
            "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
            *(
                f"--add-opens=java.base/{name}=ALL-UNNAMED"
                for name in ("java.lang", "java.nio", "java.util", "sun.nio.ch")
            ),
        ]
    if java.major >= 22:
        options.append("--enable-native-access=ALL-UNNAMED")  # RocksDB and Netty; otherwise there is a warning
    if java.major >= 23:
        options.append("--sun-misc-unsafe-memory-access=allow")  # Netty and Guava; otherwise there is a warning
    return options
