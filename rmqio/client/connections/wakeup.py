"""A descriptor that another thread can make readable to end a poll(2) early."""

from __future__ import annotations

import os
from contextlib import suppress


class Wakeup:
    """A pipe to the same process. Any thread can call `wake`, also after `close`."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self.pid = os.getpid()

    def fileno(self) -> int:
        return self._read_end

    def wake(self) -> None:
        if self._write_end >= 0:
            with suppress(BlockingIOError):  # the pipe is full, so it is readable already
                os.write(self._write_end, b"\0")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._read_end, 4096):
                pass

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        read_end, write_end = self._read_end, self._write_end
        self._read_end = self._write_end = -1
        if write_end >= 0:
            os.close(read_end)
            os.close(write_end)
