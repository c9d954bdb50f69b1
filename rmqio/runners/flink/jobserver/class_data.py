"""The job server's classes in a file of the cache folder, so that a Flink on this machine starts sooner.

The second start makes the file, and later ones use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rmqio.local.processes.java import USERS_OWN, Java, identity_of
from rmqio.runners import class_data

VARIABLE: Final = "RMQIO_FLINK_CLASS_DATA"
"""0 turns it off."""
_MINIMUM_JAVA: Final = 13
_OF_THE_KIND: Final = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
"""Options of a user that say where the JVM has its classes from."""


class ClassData(class_data.ClassData):
    """The file for one Java and one job server, and this process's part in it.

    Args:
      java: runs the job server.
      class_path: jars that stay where they are.
      given: the user's options of the JVM.
      makes: whether this JVM may make the file: one that only submits jobs to a cluster loads less than half of
        the classes.
    """

    def __init__(self, java: Java, class_path: Sequence[Path], given: Sequence[str], *, makes: bool) -> None:
        super().__init__()
        texts = [*given, *(os.environ.get(name, "") for name in USERS_OWN)]
        is_given = any(word in text for word in _OF_THE_KIND for text in texts)
        if os.environ.get(VARIABLE) == "0" or java.major < _MINIMUM_JAVA or is_given:
            return
        with contextlib.suppress(OSError):  # a folder that cannot be written is no reason to fail
            self.look("flink", _key(java, class_path), makes=makes)


def _key(java: Java, class_path: Sequence[Path]) -> str:
    """Return what changes with Java and the class path. Raises `OSError` if there is no such file."""
    stats = [(each, each.stat().st_mtime_ns, each.stat().st_size) for each in class_path]
    parts = (*identity_of(java.executable), stats)
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
