"""Removes the objects of a claim check by age."""

from __future__ import annotations

import datetime
import time
from typing import Any, NamedTuple

from rmqio.claims.check import ClaimCheck, ClaimStoreError
from rmqio.claims.listing import objects_of, remove
from rmqio.errors import LocalError

_DAY_S = 86_400


class Cleaned(NamedTuple):
    """The objects that `clean` has removed."""

    objects: int
    bytes: int
    days: tuple[str, ...]
    """The folders of the days that it emptied, sorted."""


def clean(
    path: str,
    *,
    older_than_s: float,
    dry_run: bool = False,
    now_s: float | None = None,
    options: Any = None,
) -> Cleaned:
    """Remove the objects of all days that ended longer ago than this. Anything else in the folder stays.

    Keep objects at least as long as the broker keeps messages (`fileReservedTime`, 72 hours by default) and as any
    consumer may lag behind: a message whose object is gone is a dead letter.

    Args:
      path: the folder, `ClaimCheck.path`.
      older_than_s: seconds since the end of the day (UTC) on which an object was written.
      dry_run: remove nothing; say what would be.
      options: `PipelineOptions` for Beam's file systems; HDFS needs `--hdfs_host`, `--hdfs_port` and `--hdfs_user`.

    Raises `LocalError` for a wrong argument, `ClaimStoreError` if the folder cannot be read or changed.
    """
    folder = ClaimCheck(path).path
    if not older_than_s > 0:
        raise LocalError(f"older_than_s is {older_than_s!r}; it must be more than 0")
    now_s = time.time() if now_s is None else now_s
    try:
        if options is not None:
            from apache_beam.io.filesystems import FileSystems

            FileSystems.set_options(options)
        old = [each for each in objects_of(folder) if _ended_s(each.day) + older_than_s <= now_s]
        if not dry_run:
            remove([each.path for each in old])
    except LocalError:
        raise
    except Exception as error:  # clients of object stores raise errors of their own
        raise ClaimStoreError(f"cannot clean {folder}: {type(error).__name__}: {error}") from error
    return Cleaned(len(old), sum(each.size for each in old), tuple(sorted({each.day for each in old})))


def _ended_s(day: str) -> float:
    try:
        midnight = datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()
    except ValueError:  # the 31st of February is no folder of ours
        return float("inf")
    return midnight + _DAY_S
