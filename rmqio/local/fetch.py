"""Fetch what a lock names into the user's cache: in parallel, resumable, and no byte that the lock did not name."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import platformdirs

from rmqio.local.artefacts import Artefact, Lock, is_verified
from rmqio.local.errors import LocalBrokerError
from rmqio.local.maven import Repository, find_repository, local_repository

CACHE_VARIABLE: Final = "RMQIO_CACHE"
_PARALLEL: Final = 8


def cache_dir() -> Path:
    """The folder of downloads: RMQIO_CACHE, else the user's cache folder on this system."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else platformdirs.user_cache_path("rmqio")


def fetch(lock: Lock, *, cache: Path | None = None, repository: Repository | None = None) -> list[Path]:
    """The verified files of `lock` in its order, downloading what is missing.

    A file is taken from our cache or from Maven's local repository if its size and SHA-256 are the lock's; every file
    is hashed on every call, so a damaged one is fetched again rather than run. Safe in several processes at once. What
    a broken-off download has left is continued. Raises LocalBrokerError naming the file, the repository and a remedy.
    """
    cache = cache_dir() / "maven" if cache is None else cache
    folders = (cache, local_repository())
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        found = list(pool.map(lambda artefact: _present(artefact, folders), lock.artefacts))
    missing = [artefact for artefact, path in zip(lock.artefacts, found, strict=True) if path is None]
    if missing:
        _download(lock, missing, cache, repository or find_repository())
    return [path or cache / entry.coordinates.path for entry, path in zip(lock.artefacts, found, strict=True)]


def _present(artefact: Artefact, folders: Sequence[Path]) -> Path | None:
    paths = (folder / artefact.coordinates.path for folder in folders)
    return next((path for path in paths if is_verified(artefact, path)), None)


def _download(lock: Lock, missing: Sequence[Artefact], cache: Path, repository: Repository) -> None:
    # Both are slow to import (0.2 s), and nearly always everything is there already.
    from tqdm import tqdm

    from rmqio.local.download import Downloader, Stopped

    size = sum(artefact.size for artefact in missing)
    print(f"{lock.name}: fetching {len(missing)} files ({size / 1e6:.0f} MB) from {repository}", file=sys.stderr)
    stop = threading.Event()
    # tqdm is quiet where nobody watches (disable=None: not a terminal), for example in a log of a build server.
    with (
        tqdm(total=size, unit="B", unit_scale=True, disable=None, leave=False, file=sys.stderr) as bar,
        Downloader(repository, cache, stop=stop, progress=bar.update, connections=_PARALLEL) as downloader,
        concurrent.futures.ThreadPoolExecutor(_PARALLEL, thread_name_prefix="rmqio-fetch") as pool,
    ):
        # The largest first, so that the last thread is not left alone with it.
        ordered = sorted(missing, key=lambda artefact: -artefact.size)
        downloads = [pool.submit(downloader.download, artefact) for artefact in ordered]
        try:
            for download in concurrent.futures.as_completed(downloads):
                download.result()
        except Stopped as error:
            raise LocalBrokerError("the download was stopped") from error
        finally:
            stop.set()  # after the first failure, or Ctrl-C: the rest must not go on behind our back
            pool.shutdown(cancel_futures=True)
    print(f"{lock.name}: fetched and verified, kept in {cache}", file=sys.stderr)
