"""The files of a folder of jobs: which are new, changed or gone since the last look."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SUFFIX: Final = ".sql"
_NAME: Final = re.compile(r"\w[\w.-]*")
_SPELT: Final = "is ignored: the name of a job's file ends in .sql, in small letters"
_TOO_DEEP: Final = "is ignored: jobs are files of the folder and of its folders, and not of theirs: move it up"
NAMES: Final = "letters, digits, '_', '-' and '.', and does not begin with one of the last two"


@dataclass(frozen=True, slots=True)
class Found:
    """A file at a look. `text` is None if it cannot be read; `error` then says why."""

    path: Path
    text: bytes | None
    error: str = ""


@dataclass(slots=True)
class Changes:
    """The changes since the last look that have settled: two looks have seen the same."""

    offered: dict[str, Found] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)


def scan(folder: Path) -> dict[str, Found]:
    """Returns the files of both levels by the names of their jobs. Raises `OSError` if a folder cannot be listed."""
    found: dict[str, Found] = {}
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if entry.name.startswith("."):
            continue
        path = folder / entry.name
        if entry.is_dir():
            for inner in sorted(os.listdir(path)):
                if inner.endswith(SUFFIX) and not inner.startswith(".") and not (path / inner).is_dir():
                    found[f"{entry.name}/{inner.removesuffix(SUFFIX)}"] = _read(path / inner)
        elif entry.name.endswith(SUFFIX):
            found[entry.name.removesuffix(SUFFIX)] = _read(path)
    return found


def overlooked(folder: Path, state: Path) -> dict[Path, str]:
    """Returns files that look like those of jobs and are none, with the reason. `state`: the state folder has others.

    Raises `OSError` if the folder cannot be listed.
    """
    found: dict[Path, str] = {}
    for entry in os.scandir(folder):
        inner = folder / entry.name
        if entry.name.startswith(".") or inner.absolute() == state:
            continue
        if not entry.is_dir():
            _overlook([inner], _SPELT, found)
            continue
        for where, folders, names in os.walk(inner):
            shown = [each for each in folders if not each.startswith(".")]
            folders[:] = [each for each in shown if Path(where, each).absolute() != state]
            is_second = Path(where) == inner
            _overlook((Path(where, each) for each in names), _SPELT if is_second else _TOO_DEEP, found)
    return dict(sorted(found.items()))


def _overlook(paths: Iterable[Path], reason: str, found: dict[Path, str]) -> None:
    for path in paths:
        is_taken = path.suffix == SUFFIX and reason == _SPELT
        if path.suffix.lower() == SUFFIX and not path.name.startswith(".") and not is_taken:
            found[path] = reason


def wrong_name(name: str) -> str:
    """Returns what is wrong with the name of a job; empty: nothing."""
    if all(_NAME.fullmatch(part) for part in name.split("/")):
        return ""
    return f"the name of a job is made of {NAMES}: rename the file or its folder"


class Watch:
    """Looks at a folder again and again. A file that is being written waits until two looks see the same text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: dict[str, Found] = {}
        self._taken: dict[str, Found] = {}
        self._missing: set[str] = set()

    def look(self) -> Changes:
        """Returns what has changed. Raises `OSError` if the folder cannot be listed: then nothing has."""
        now = scan(self._folder)
        changes = Changes()
        for name, found in now.items():
            if self._last.get(name) == found != self._taken.get(name):
                changes.offered[name] = self._taken[name] = found
        missing = self._taken.keys() - now.keys()
        for name in sorted(missing & self._missing):
            changes.removed.append(name)
            del self._taken[name]
        self._last, self._missing = now, missing
        return changes


def _read(path: Path) -> Found:
    try:
        return Found(path, path.read_bytes())
    except OSError as error:
        return Found(path, None, f"cannot read {path}: {error.strerror}")
