"""The folder with a broker's data: exists, is large enough, and is used by only one broker."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqio.local.errors import LocalBrokerError

# Above this the broker refuses all writes with code 14; no setting raises it (CleanCommitLogService caps it at 0.9).
_DISK_LIMIT: Final = 0.90


def temporary_folder() -> Path:
    """Create a new folder, which the caller removes."""
    return Path(tempfile.mkdtemp(prefix="rmqio-local-"))


def made_folder(folder: Path) -> Path:
    """Return `folder`, creating it if necessary. Raises LocalBrokerError on failure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalBrokerError(f"cannot create the data folder {folder}: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[int]:
    """Yield a descriptor with an exclusive lock on the folder, for the watchdog: two brokers would ruin the store."""
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError as error:
        raise LocalBrokerError(
            f"the data folder {data_dir} is in use by another LocalRocketMQ: stop it, or choose another folder"
        ) from error
    finally:
        os.close(descriptor)


def require_space(folder: Path) -> None:
    """Raise LocalBrokerError if the disk is so full that the broker would refuse to write."""
    usage = shutil.disk_usage(folder)
    used = usage.used / (usage.used + usage.free)
    if used > _DISK_LIMIT:
        raise LocalBrokerError(
            f"the disk of {folder} is {used:.0%} full, and RocketMQ refuses to write above {_DISK_LIMIT:.0%}, which no "
            "setting raises: free some space, or choose a folder on another disk with data_dir="
        )
