"""Checkpoints: the option that names their folder, and the lock that only one pipeline has.

Spark detects a second pipeline when one loses its micro-batch to the other; Flink does not detect it at all.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from apache_beam.options.pipeline_options import PipelineOptions

from rmqio.errors import LocalError
from rmqio.runners.errors import NotReady

# The folder of checkpoints, made before anything slow starts.


def make_folder(path: Path) -> None:
    """Makes a local folder for checkpoints. Raises `NotReady` if that cannot be done, or it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotReady(
            f"--checkpoint_dir={path}: it cannot be created ({error.strerror}); give a folder that this user can write"
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise NotReady(f"--checkpoint_dir={path}: it cannot be written; give a folder that this user can write")


# The option that runners of unbounded pipelines share.


class CheckpointOptions(PipelineOptions):
    """`--checkpoint_dir`, for Spark and Flink alike."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--checkpoint_dir",
            metavar="PATH",
            help="Where a streaming pipeline keeps offsets and state; after a restart, it resumes from there.",
        )


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


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
