"""The log of a job, rotated by size."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
