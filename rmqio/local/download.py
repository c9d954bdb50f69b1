"""Downloads a file from a Maven repository: resumes where it stopped, verifies, and puts it in place atomically."""

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

from rmqio.local.artefacts import REPOSITORY_VARIABLE, Artefact, Repository, is_verified
from rmqio.local.errors import LocalBrokerError, WrongContentError

_ATTEMPTS: Final = 4
_FIRST_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = (10.0, 60.0)  # to connect, and between two pieces
_CHUNK: Final = 128 * 1024
# Overload and the like; after a 416 the part file is dropped.
_TRY_AGAIN: Final = frozenset({408, 416, 425, 429, 500, 502, 503, 504})
_NOT_TRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"


class Stopped(Exception):
    """The download was cancelled because another one failed."""


class _Broken(Exception):
    """This attempt failed; another one may succeed. `drop`: the bytes fetched so far are unusable."""

    def __init__(self, reason: str, *, drop: bool = False) -> None:
        super().__init__(reason)
        self.drop = drop


class Downloader:
    """Downloads from one repository into one cache; several threads can call `download`.

    `progress` receives the bytes as they arrive, and negative numbers when bytes have to be fetched again.
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
        # Jars are already compressed, and a transparent encoding would falsify ranges and sizes.
        self._session.headers["Accept-Encoding"] = "identity"
        if repository.credentials:
            self._session.auth = repository.credentials

    def __enter__(self) -> Downloader:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def download(self, artefact: Artefact) -> Path:
        """Return the file's path in the cache, complete and verified. Raises LocalBrokerError, or Stopped."""
        target = self._cache / artefact.coordinates.path
        # The name contains the checksum, so a part of different content is never continued.
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
                f"cannot write {target} ({error.strerror or error}): free some space, "
                "or set RMQIO_CACHE to another folder"
            ) from error
        return target

    def _complete(self, file: io.BufferedRandom, artefact: Artefact) -> None:
        """Fetch the missing bytes of `file` and verify all of it."""
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
                if _NOT_TRUSTED in str(error):
                    raise LocalBrokerError(
                        f"the certificate of {self._repository.url} is not trusted. If this network replaces "
                        "certificates with its own, set REQUESTS_CA_BUNDLE to the file of its authorities"
                    ) from error
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
            f"Is there a network? Behind a firewall, set {REPOSITORY_VARIABLE} to your mirror or configure it in "
            "Maven's settings.xml. The part already fetched is kept; the next start resumes from there"
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
                break  # the content is already wrong, so stop here
        file.flush()

    def _pieces(self, artefact: Artefact, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of the file with their offset: the first is at `start`, or 0 without range support."""
        url = f"{self._repository.url}/{artefact.coordinates.path}"
        if url.startswith("file:"):
            try:
                yield 0, Path(unquote(urlsplit(url).path)).read_bytes()
            except OSError as error:
                raise LocalBrokerError(
                    f"{artefact.coordinates} could not be read from {self._repository}: {error.strerror}"
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
                f"{self._repository} refused {artefact.coordinates} with HTTP status {status}: put its credentials "
                f"into a <server> in Maven's settings.xml, or into {REPOSITORY_VARIABLE} as user:password@"
            )
        if status not in (200, 206):
            raise LocalBrokerError(
                f"{self._repository} does not have {artefact.coordinates} (HTTP status {status} for "
                f"{artefact.coordinates.path}): set {REPOSITORY_VARIABLE} to a complete Maven repository"
            )

    def _verify(self, file: io.BufferedRandom, artefact: Artefact, *, resumed: bool) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < artefact.size:
            raise _Broken(f"the connection ended after {size} of {artefact.size} bytes")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if size == artefact.size and digest == artefact.sha256:
            return
        if resumed:  # the remains of an earlier run may be at fault: fetch the whole file again
            raise _Broken(f"the resumed file has SHA-256 {digest}", drop=True)
        file.truncate(0)
        raise WrongContentError(
            f"{artefact.coordinates} from {self._repository} is not the file that the lock names: expected SHA-256 "
            f"{artefact.sha256} and {artefact.size} bytes, got {digest} and {size} or more. It was discarded. The "
            f"repository has different content, or it is changed on the way: use another one ({REPOSITORY_VARIABLE})"
        )


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[io.BufferedRandom]:
    """Open the part file, locked against other processes and threads; waits for its turn."""
    while True:
        with open(part, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # The previous owner may have renamed or removed the file that we opened: it is then no longer the part.
            try:
                current = os.path.samestat(os.fstat(file.fileno()), os.stat(part))
            except FileNotFoundError:
                current = False
            if current:
                yield file
                return
