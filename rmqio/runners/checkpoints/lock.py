"""Ensures that only one pipeline at a time uses a checkpoint.

Spark detects a second pipeline when one loses its micro-batch to the other; Flink does not detect it at all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from rmqio.errors import LocalError
from rmqio.runners.checkpoints.folders import make_folder

_FILE: Final = ".rmqio.lock"


class Exclusive:
    """Locks a folder until it is closed or the process ends in any way.

    The lock works on this machine only. On a file system that machines share, only Spark's own check remains, as above.

    Args:
      folder: a URL in Hadoop's form: file: and a plain path, without escapes.

    Raises:
      LocalError: another process has locked the folder, or it cannot be made.
    """

    def __init__(self, folder: str) -> None:
        self._file: int | None = None
        if fcntl is None or not folder.startswith("file:"):
            return
        path = Path(folder.removeprefix("file:"))
        make_folder(path)
        file = os.open(path / _FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise LocalError(
                f"{folder} is in use: process {owner or 'unknown'} runs a pipeline with this --checkpoint_dir. Stop "
                "it first, or give this pipeline its own folder"
            ) from None
        except OSError:  # a file system without locks
            os.close(file)
            return
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
        self._file = file

    def close(self) -> None:
        """Releases the folder. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
