"""Lists the objects of a claim check, and removes them by age."""

from __future__ import annotations

import datetime
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from rmqio.claims.check import ClaimCheck, ClaimStoreError, is_day, is_object
from rmqio.errors import LocalError

# Lists and removes the objects of a claim check, whatever the name of its folder.
#
# Beam's file systems list by patterns, in which `*`, `?` and `[` of a folder's name stand for other names, and some
# of them remove by patterns, too. HDFS lists one level of folders only.

_SPECIAL: Final = re.compile(r"[*?\[]")
_STORES: Final = ("gs", "s3", "azfs")
"""Object stores: they list by prefix, so that a pattern can have any form."""
_REMOVES_BY_PATTERN: Final = ("gs",)


class Found(NamedTuple):
    """An object of the folder."""

    path: str
    size: int
    day: str


def objects_of(folder: str) -> Iterator[Found]:
    """Yield the objects of a folder. Any other files in it are left out.

    Raises `LocalError` if there is no such folder, or its name cannot be listed; else what the file system raises.
    """
    scheme = _scheme(folder)
    if scheme is None:
        found = _local(folder)
    elif scheme in _STORES:
        found = _matched([f"{_quoted(folder.rstrip('/'))}/????-??-??/*"])
    else:
        found = _level_by_level(folder)
    return (each for each in found if is_day(each.day) and is_object(os.path.basename(each.path)))


def remove(paths: Sequence[str]) -> None:
    """Remove files by their exact paths, all of one file system. Raises what the file system raises."""
    if not paths:
        return
    scheme = _scheme(paths[0])
    if scheme is None:
        for path in paths:
            os.remove(path)
        return
    from apache_beam.io.filesystems import FileSystems

    with _nested_sets():
        FileSystems.delete([_quoted(path) for path in paths] if scheme in _REMOVES_BY_PATTERN else list(paths))


def _scheme(path: str) -> str | None:
    return path.partition("://")[0].lower() if "://" in path else None


def _local(folder: str) -> Iterator[Found]:
    """The file system of this machine needs no patterns; Beam's would walk all folders beside this one."""
    if not os.path.isdir(folder):
        raise LocalError(f"there is no folder {folder!r}")
    with os.scandir(folder) as days:
        names = [day.name for day in days if is_day(day.name) and day.is_dir()]
    for name in names:
        with os.scandir(os.path.join(folder, name)) as files:
            for file in files:
                if file.is_file(follow_symlinks=False):
                    yield Found(file.path, file.stat(follow_symlinks=False).st_size, name)


def _level_by_level(folder: str) -> Iterator[Found]:
    from apache_beam.io.filesystems import FileSystems

    if _SPECIAL.search(folder):
        raise LocalError(
            f"the folder {folder!r} has *, ? or [ in its name, which Beam takes for a pattern in this file system: "
            "remove its objects with the file system's own tools, or use a folder without these characters"
        )
    if not FileSystems.exists(folder):
        raise LocalError(f"there is no folder {folder!r}")
    (days,) = FileSystems.match([f"{folder.rstrip('/')}/????-??-??"])
    paths = [each.path.rstrip("/") for each in days.metadata_list]
    yield from _matched([f"{path}/*" for path in paths if is_day(os.path.basename(path))])


def _matched(patterns: Sequence[str]) -> Iterator[Found]:
    from apache_beam.io.filesystems import FileSystems

    with _nested_sets():
        results = FileSystems.match(list(patterns)) if patterns else []
    for each in _all(result.metadata_list for result in results):
        within, _, _ = each.path.rpartition("/")
        yield Found(each.path, each.size_in_bytes, within.rpartition("/")[2])


def _all(lists: Iterable[Sequence[Any]]) -> Iterator[Any]:
    return (each for some in lists for each in some)


def _quoted(path: str) -> str:
    """Return the pattern that only this path matches: a set of one character stands for it."""
    return _SPECIAL.sub(lambda found: f"[{found[0]}]", path)


def _nested_sets() -> warnings.catch_warnings[None]:
    """Beam makes a regular expression of a pattern, and Python warns of the set that quotes `[`."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


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
