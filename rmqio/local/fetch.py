"""Fetches the files of a lock into the user's cache: in parallel, resumable, and only content that the lock names."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import platformdirs

from rmqio.local.artefacts import Artefact, Lock, Repository, find_repository, is_verified, local_repository
from rmqio.local.errors import LocalBrokerError

CACHE_VARIABLE: Final = "RMQIO_CACHE"
_PARALLEL: Final = 8


def cache_dir() -> Path:
    """Return the download folder: RMQIO_CACHE, else the user's cache folder on this system."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else platformdirs.user_cache_path("rmqio")


def fetch(lock: Lock, *, cache: Path | None = None, repository: Repository | None = None) -> list[Path]:
    """Return the verified files of `lock` in its order, downloading missing ones.

    A file is taken from our cache or from Maven's local repository if its size and SHA-256 match the lock. Every file
    is hashed on every call, so a damaged file is fetched again and never run. Several processes can call it at once. An
    interrupted download is resumed. Raises LocalBrokerError naming the file, the repository and a remedy.
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
    # Both are slow to import (0.2 s), and nearly always all files are present.
    from tqdm import tqdm

    from rmqio.local.download import Downloader, Stopped

    size = sum(artefact.size for artefact in missing)
    print(f"{lock.name}: fetching {len(missing)} files ({size / 1e6:.0f} MB) from {repository}", file=sys.stderr)
    stop = threading.Event()
    # tqdm is silent without a terminal (disable=None), for example in a build server's log.
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
            stop.set()  # after the first failure, or Ctrl-C: the other downloads must not continue in the background
            pool.shutdown(cancel_futures=True)
    print(f"{lock.name}: fetched and verified, stored in {cache}", file=sys.stderr)
