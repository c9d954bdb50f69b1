"""One file from a Maven repository: resumed where it broke off, verified, and put in place in one step."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter

from rmqio.local.artefacts import Artefact, is_verified
from rmqio.local.errors import LocalBrokerError, WrongContentError
from rmqio.local.maven import REPOSITORY_VARIABLE, Repository

_ATTEMPTS: Final = 4
_FIRST_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = (10.0, 60.0)  # to connect, and between two pieces
_CHUNK: Final = 128 * 1024
# Overload and the like; and 416, after which the part is dropped.
_TRY_AGAIN: Final = frozenset({408, 416, 425, 429, 500, 502, 503, 504})


class Stopped(Exception):
    """The download was given up because another one failed."""


class _Broken(Exception):
    """This attempt failed, another one may succeed. `drop`: what was fetched so far is of no use."""

    def __init__(self, reason: str, *, drop: bool = False) -> None:
        super().__init__(reason)
        self.drop = drop


class Downloader:
    """Downloads from one repository into one cache; `download` may be called from several threads.

    `progress` is told of bytes as they come in, and of negative numbers when some have to be fetched again.
    """

    def __init__(
        self,
        repository: Repository,
        cache: Path,
        *,
        stop: threading.Event | None = None,
        progress: Callable[[int], Any] = lambda size: None,
        connections: int = 1,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._repository, self._cache = repository, cache
        self._stop = stop or threading.Event()
        self._progress = progress
        self._first_pause_s = first_pause_s
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=connections))
        self._session.headers.update(dict(repository.headers))
        # Jars are compressed already, and a transparent encoding would make ranges and sizes lie.
        self._session.headers["Accept-Encoding"] = "identity"
        if repository.credentials:
            self._session.auth = repository.credentials

    def __enter__(self) -> Downloader:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def download(self, artefact: Artefact) -> Path:
        """The file's path in the cache, complete and verified. Raises LocalBrokerError, or Stopped."""
        target = self._cache / artefact.coordinates.path
        # The name holds the checksum: a part of other content is never continued.
        part = target.with_name(f"{target.name}.{artefact.sha256[:16]}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(part) as file:
                # Another process may have put it in place while we waited for the lock.
                if is_verified(artefact, target):
                    part.unlink()
                    self._progress(artefact.size)
                else:
                    self._complete(file, artefact)
                    os.replace(part, target)
        except OSError as error:
            raise LocalBrokerError(
                f"{target} cannot be written ({error.strerror or error}): free some space, "
                "or let RMQIO_CACHE name another folder"
            ) from error
        return target

    def _complete(self, file: io.BufferedRandom, artefact: Artefact) -> None:
        """Fetch into `file` what it lacks, and verify the whole."""
        failure = ""
        for attempt in range(_ATTEMPTS):
            if self._stop.wait(self._first_pause_s * 2 ** (attempt - 1) if attempt else 0):
                raise Stopped
            start = file.seek(0, os.SEEK_END)
            self._progress(start)
            try:
                if start < artefact.size:
                    self._append(file, artefact, start)
                self._verify(file, artefact, resumed=start > 0)
                return
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                failure, drop = str(error), False
            except _Broken as error:
                failure, drop = str(error), error.drop
            except requests.RequestException as error:
                raise LocalBrokerError(f"{artefact.coordinates} from {self._repository}: {error}") from error
            self._progress(-file.seek(0, os.SEEK_END))
            if drop:
                file.truncate(0)
        raise LocalBrokerError(
            f"{artefact.coordinates} could not be fetched from {self._repository} in {_ATTEMPTS} attempts: {failure}. "
            f"Is there a network? Behind a firewall, name your mirror in {REPOSITORY_VARIABLE} or in Maven's "
            "settings.xml. What was fetched is kept; the next start goes on from there"
        )

    def _append(self, file: io.BufferedRandom, artefact: Artefact, start: int) -> None:
        for offset, chunk in self._pieces(artefact, start):
            if self._stop.is_set():
                raise Stopped
            if offset < start:  # the server ignores ranges and sends the whole file
                self._progress(-start)
                file.truncate(0)
                start = 0
            file.write(chunk)  # the file is in append mode
            self._progress(len(chunk))
            if file.seek(0, os.SEEK_END) > artefact.size:
                break  # no need for more of what is wrong already
        file.flush()

    def _pieces(self, artefact: Artefact, start: int) -> Iterator[tuple[int, bytes]]:
        """Pieces of the file, each with the offset where the first belongs: `start`, or 0 without range support."""
        url = f"{self._repository.url}/{artefact.coordinates.path}"
        if url.startswith("file:"):
            try:
                yield 0, Path(unquote(urlsplit(url).path)).read_bytes()
            except OSError as error:
                raise LocalBrokerError(
                    f"{artefact.coordinates} cannot be read from {self._repository}: {error.strerror}"
                ) from error
            return
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
            self._check_status(response.status_code, artefact)
            offset = start if response.status_code == requests.codes.partial_content else 0
            for chunk in response.iter_content(_CHUNK):
                yield offset, chunk

    def _check_status(self, status: int, artefact: Artefact) -> None:
        if status in _TRY_AGAIN:
            raise _Broken(f"HTTP status {status}", drop=status == requests.codes.requested_range_not_satisfiable)
        if status in (401, 403, 407):
            raise LocalBrokerError(
                f"{self._repository} refuses {artefact.coordinates} with HTTP status {status}: give its credentials as "
                f"<server> in Maven's settings.xml, or in {REPOSITORY_VARIABLE} as user:password@"
            )
        if status not in (200, 206):
            raise LocalBrokerError(
                f"{self._repository} has no {artefact.coordinates} (HTTP status {status} for "
                f"{artefact.coordinates.path}): name a complete Maven repository in {REPOSITORY_VARIABLE}"
            )

    def _verify(self, file: io.BufferedRandom, artefact: Artefact, *, resumed: bool) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < artefact.size:
            raise _Broken(f"the connection ended after {size} of {artefact.size} bytes")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if size == artefact.size and digest == artefact.sha256:
            return
        if resumed:  # what an earlier run left may be at fault: the whole file anew decides
            raise _Broken(f"the continued file has SHA-256 {digest}", drop=True)
        file.truncate(0)
        raise WrongContentError(
            f"{artefact.coordinates} from {self._repository} is not the file that the lock names: wanted SHA-256 "
            f"{artefact.sha256} and {artefact.size} bytes, got {digest} and {size} or more. It was thrown away. The "
            f"repository has other content, or it is changed on the way: use another one ({REPOSITORY_VARIABLE})"
        )


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[io.BufferedRandom]:
    """The part file, open and locked against other processes and threads; waits for its turn."""
    while True:
        with open(part, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # The one before us may have renamed or removed the file that we had opened: then it is no longer the part.
            try:
                current = os.path.samestat(os.fstat(file.fileno()), os.stat(part))
            except FileNotFoundError:
                current = False
            if current:
                yield file
                return
