"""Compiled patterns in a folder, by their content: the processes of a machine compile each set of patterns once."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import platformdirs

_LOGGER: Final = logging.getLogger("rmqio.rules")
_DIGEST_BYTES: Final = 32
_KEPT_S: Final = 30 * 86_400


def default_folder() -> Path:
    """The folder: of RMQIO_CACHE, else in the user's cache folder."""
    given = os.environ.get("RMQIO_CACHE")
    return (Path(given) if given else platformdirs.user_cache_path("rmqio")) / "rules"


class FolderStore:
    """Files by key, each with its digest in front. A file that is damaged is made again.

    The folder belongs to the user, and nobody else may write to it: what is in it is run. If it cannot be used, each
    process compiles for itself. Files that nobody has read for 30 days are deleted.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def get(self, key: str, build: Callable[[], bytes]) -> bytes:
        """Returns what is stored, or builds it, once even if several processes ask."""
        try:
            self._require_own()
            path = self.folder / key
            found = _read(path)
            if found is not None:
                return found
            with self._locked(key):
                found = _read(path)
                if found is None:
                    found = build()
                    self._write(path, found)
                return found
        except OSError as error:
            _LOGGER.warning("compiled rules are not shared: %s", error)
            return build()

    def _require_own(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to {self.folder}")

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with (self.folder / f"lock-{key[:1]}").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, path: Path, raw: bytes) -> None:
        """Others see all of the file or nothing."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            temporary.write_bytes(hashlib.sha256(raw).digest() + raw)
            temporary.replace(path)
        except OSError as error:  # a full disk, for instance
            _LOGGER.warning("compiled rules are not kept: %s", error)
            with suppress(OSError):
                temporary.unlink()
        oldest = time.time() - _KEPT_S
        for each in self.folder.iterdir():
            with suppress(OSError):
                if each.stat().st_mtime < oldest and not each.name.startswith("lock-"):
                    each.unlink()


def _read(path: Path) -> bytes | None:
    try:
        whole = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, raw = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
    if hashlib.sha256(raw).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    return raw
