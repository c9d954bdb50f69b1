"""Folders of tables that belong to one job: they are removed when no process uses them any more."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Final

from rmqio.enrich.store import default_folder

_USERS: Final = "users"
"""A file that each process which uses the folder has locked, together with the others."""
_UNUSED_S: Final = 3600.0
"""A folder that a killed process has left is kept for so long: a job can be between two stages."""
_held: set[Held] = set()


class Held:
    """A folder that this process uses. It makes the folder, and removes others beside it that nobody uses."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        while True:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.utime(self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._descriptor), os.stat(folder / _USERS)):
                    break
            os.close(self._descriptor)  # another process has removed it meanwhile
        _held.add(self)
        with contextlib.suppress(OSError):
            for each in folder.parent.iterdir():
                if each != folder:
                    _remove_if_left(each)

    def release(self) -> None:
        """Removes the folder if no other process uses it. Idempotent."""
        if self not in _held or self._pid != os.getpid():  # a fork has the lock of its parent
            return
        _held.discard(self)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._descriptor)


def folder_of_jobs() -> Path:
    """Returns the folder that has a folder for each table of a job."""
    return default_folder() / "jobs"


def _remove_if_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / _USERS, os.O_RDWR | os.O_CLOEXEC)
        try:
            if time.time() - os.fstat(descriptor).st_mtime > _UNUSED_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


@atexit.register
def _release_all() -> None:
    for each in list(_held):
        each.release()
