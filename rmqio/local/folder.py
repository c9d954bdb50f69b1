"""The folder with a broker's data: made, large enough, and used by one broker only."""

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

# Above this the broker refuses every write with code 14; no setting raises it (CleanCommitLogService caps them at 0.9).
_DISK_LIMIT: Final = 0.90


def temporary_folder() -> Path:
    """A new folder, for the caller to remove."""
    return Path(tempfile.mkdtemp(prefix="rmqio-local-"))


def made_folder(folder: Path) -> Path:
    """`folder`, made if it does not exist. Raises LocalBrokerError if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalBrokerError(f"the data folder {folder} cannot be made: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[int]:
    """A descriptor with the only lock on the folder, for the watchdog to hold: two brokers would ruin one store."""
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError as error:
        raise LocalBrokerError(
            f"the data folder {data_dir} is in use by another LocalRocketMQ: stop that one, or choose another folder"
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
