"""The folder of checkpoints, made before anything slow starts."""

from __future__ import annotations

import os
from pathlib import Path

from rmqio.runners.errors import NotReady


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
