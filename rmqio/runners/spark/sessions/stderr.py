"""Passes on what Spark's JVM and its Python workers write to standard error, without lines that mean nothing."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from typing import IO, Final

_MEANINGLESS: Final = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector\n"})
"""Spark's launcher asks the JVM for this module; the JVM warns of it at each start, and no option turns that off."""
_STDERR: Final = 2


def filtered(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Returns the process that `start` starts with `stderr=subprocess.PIPE`, and copies its standard error."""
    process = start()
    if process.stderr is not None:
        threading.Thread(target=_copy, args=(process.stderr,), name="spark-stderr", daemon=True).start()
    return process


def _copy(source: IO[bytes]) -> None:
    with source:
        while data := os.read(source.fileno(), 1 << 16):
            # Progress and prompts end without a line break: they are passed on as they come.
            kept = b"".join(line for line in data.splitlines(keepends=True) if line not in _MEANINGLESS)
            while kept:
                try:
                    kept = kept[os.write(_STDERR, kept) :]
                except OSError:
                    break  # our own standard error is closed; Spark must not wait for a reader all the same
