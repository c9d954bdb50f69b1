"""Removes the objects of a claim check by age."""

from __future__ import annotations

import datetime
import time
from typing import NamedTuple

from rmqio.claims.check import ClaimCheck, ClaimStoreError, is_day
from rmqio.errors import LocalError

_DAY_S = 86_400


class Cleaned(NamedTuple):
    """The objects that `clean` has removed."""

    objects: int
    bytes: int
    days: tuple[str, ...]
    """The folders of the days that it emptied, sorted."""


def clean(path: str, *, older_than_s: float, dry_run: bool = False, now_s: float | None = None) -> Cleaned:
    """Remove the objects of all days that ended longer ago than this. Anything else in the folder stays.

    Keep objects at least as long as the broker keeps messages (`fileReservedTime`, 72 hours by default) and as any
    consumer may lag behind: a message whose object is gone is a dead letter.

    Args:
      path: the folder, `ClaimCheck.path`.
      older_than_s: seconds since the end of the day (UTC) on which an object was written.
      dry_run: remove nothing; say what would be.

    Raises `LocalError` for a wrong argument, `ClaimStoreError` if the folder cannot be read or changed.
    """
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    folder = ClaimCheck(path).path
    if not older_than_s > 0:
        raise LocalError(f"older_than_s is {older_than_s!r}; it must be more than 0")
    now_s = time.time() if now_s is None else now_s
    try:
        if "://" not in folder and not FileSystems.exists(folder):
            raise LocalError(f"there is no folder {folder!r}")
        pattern = FileSystems.join(folder, "????-??-??", "*")
        (found,) = FileSystems.match([pattern])
        old = []
        for each in found.metadata_list:
            day = FileSystems.split(FileSystems.split(each.path)[0])[1]
            if is_day(day) and _ended_s(day) + older_than_s <= now_s:
                old.append((each.path, each.size_in_bytes, day))
        if old and not dry_run:
            FileSystems.delete([path for path, _, _ in old])
    except (OSError, BeamIOError) as error:
        raise ClaimStoreError(f"cannot clean {folder}: {type(error).__name__}: {error}") from error
    return Cleaned(len(old), sum(size for _, size, _ in old), tuple(sorted({day for _, _, day in old})))


def _ended_s(day: str) -> float:
    try:
        midnight = datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()
    except ValueError:  # the 31st of February is no folder of ours
        return float("inf")
    return midnight + _DAY_S
