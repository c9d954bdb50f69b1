"""A long-lived helper process that answers lines with JSON lines: the Java peer, or a Python worker of ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.common.tally import BenchError

_END_TIMEOUT_S = 5


class LineProcess:
    """Started at once; ended by closing its standard input, and killed when that does not help."""

    def __init__(self, title: str, command: Sequence[str], log: Path, *, cwd: Path | None = None) -> None:
        self.title = title
        self._log_path = log
        self._log: IO[bytes] = log.open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=cwd, encoding="utf-8"
        )
        try:
            self.ready = self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> dict[str, Any]:
        """Send one line and wait for the answer. Raises `BenchError` with what the process said when it failed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise BenchError(f"{self.title} has ended:\n{self._tail()}") from error
        answer = self._answer()
        if "error" in answer:
            raise BenchError(f"{self.title}, asked for {line!r}: {answer['error']}\n{self._tail()}")
        return answer

    def close(self) -> None:
        """End the process. Idempotent."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it may have ended already
                self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print too
                return dict(json.loads(line))
        raise BenchError(f"{self.title} ended with exit status {self._process.wait()}:\n{self._tail()}")

    def _tail(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-30:])


class Worker(LineProcess):
    """A fresh Python process that runs the functions of one module of ours, see `bench.common.worker`."""

    def __init__(self, module: str, log: Path) -> None:
        root = Path(__file__).resolve().parents[2]
        super().__init__(f"worker {module}", [sys.executable, "-m", "bench.common.worker", module], log, cwd=root)

    def call(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call `function(**arguments)` there; its answer must be JSON."""
        return self.ask(json.dumps({"function": function, "arguments": dict(arguments)}))
