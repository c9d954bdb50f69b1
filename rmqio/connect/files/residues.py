"""Files of earlier attempts and writes: those that new ones replace, and those that would double their rows."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from apache_beam.io.filesystems import FileSystems

from rmqio.errors import LocalError


class FileName(NamedTuple):
    """The name of a file of a window: it depends on shard and firing alone."""

    shard: int
    shards: int
    firing: int
    """0, or the number of the firing for rows that came later."""
    suffix: str

    @property
    def stem(self) -> str:
        return f"part-{self.shard:05d}-of-{self.shards:05d}"

    def __str__(self) -> str:
        return f"{self.stem}-late{self.firing}{self.suffix}" if self.firing else f"{self.stem}{self.suffix}"

    def is_residue(self, name: str) -> bool:
        """Whether a file of the folder is left from an attempt that this file replaces.

        These are parts of files that no attempt has finished, and all of later firings: an attempt that wrote them had
        come further, and its rows come again.
        """
        pattern = rf"(\.?){self.stem}(?:-late(\d+))?{re.escape(self.suffix)}(\.[0-9a-f]{{32}})?"
        found = re.fullmatch(pattern, name)
        if found is None or bool(found[1]) is not bool(found[3]):
            return False
        firing = int(found[2] or 0)
        return firing > self.firing or (firing == self.firing and bool(found[3]))


def require_same_shards(folder: str, shards: int, suffix: str) -> None:
    """Raises `LocalError` if a folder has files of a write with another number of shards: none would replace them."""
    own = f"of-{shards:05d}{suffix}"
    pattern = re.compile(rf"part-\d{{5}}-of-(\d{{5}})(?:-late\d+)?{re.escape(suffix)}")
    for path in sorted(_matching(folder, [f"part-*{suffix}"])):
        name = os.path.basename(path)
        if (found := pattern.fullmatch(name)) and int(found[1]) != shards:
            raise LocalError(
                f"{folder} has {name}, of a write with shards={int(found[1])}: files that end in {own} would not "
                f"replace it, and its rows would be there twice. Give shards={int(found[1])}, remove the old files, or "
                "write into another folder"
            )


def remove_residues(folder: str, name: FileName) -> None:
    """Removes them from a folder. Call it when the file is there."""
    for path in list(_files(folder, name)):
        if name.is_residue(os.path.basename(path)):
            remove(path)


def remove(path: str) -> None:
    """Removes a file, if it is there."""
    if FileSystems.get_scheme(path) is None:  # Beam would take the name for a pattern
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        return
    try:
        FileSystems.delete([path])
    except OSError:  # Beam's errors are some, too
        if FileSystems.exists(path):
            raise


def _files(folder: str, name: FileName) -> Iterator[str]:
    return _matching(folder, [f"{name.stem}-late*", f".{name.stem}*"])


def _matching(folder: str, patterns: Iterable[str]) -> Iterator[str]:
    """The files of a folder; on other file systems than the local one, only those that match a pattern."""
    if FileSystems.get_scheme(folder) is None:  # Beam would look through all folders below
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield from (FileSystems.join(folder, each) for each in os.listdir(folder))
        return
    escaped = re.sub(r"([*?\[])", r"[\1]", folder)
    for result in FileSystems.match([FileSystems.join(escaped, each) for each in patterns]):
        yield from (each.path for each in result.metadata_list)
