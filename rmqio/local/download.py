"""One file from a Maven repository: resumed where it broke off, verified, and put in place in one step."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter

from rmqio.local.artefacts import Artefact
from rmqio.local.errors import LocalBrokerError
from rmqio.local.maven import REPOSITORY_VARIABLE, Repository

_ATTEMPTS: Final = 4
_FIRST_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = (10.0, 60.0)  # to connect, and between two pieces
_CHUNK: Final = 128 * 1024
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Stopped(Exception):
    """The download was given up because another one failed."""


class _Broken(Exception):
    """This attempt failed, another one may succeed."""


class Downloader:
    """Downloads from one repository into one cache; `download` may be called from several threads."""

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
        adapter = HTTPAdapter(pool_maxsize=connections)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
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
                # Another process may have put it there while we waited for the lock.
                if not _is(artefact, target):
                    self._fill(file, artefact)
                    os.replace(part, target)
                else:
                    part.unlink(missing_ok=True)
                    self._progress(artefact.size)
        except OSError as error:
            raise LocalBrokerError(
                f"{target} cannot be written ({error.strerror or error}): free some space, "
                "or let RMQIO_CACHE name another folder"
            ) from error
        return target

    def _fill(self, file: IO[bytes], artefact: Artefact) -> None:
        """Complete `file`, which may hold the beginning already, and verify it."""
        failure = ""
        for attempt in range(_ATTEMPTS):
            if attempt and self._stop.wait(self._first_pause_s * 2 ** (attempt - 1)):
                raise Stopped
            start = file.seek(0, os.SEEK_END)
            if start > artefact.size:
                file.truncate(start := 0)
            self._progress(start)
            try:
                if start < artefact.size:
                    self._append(file, artefact, start)
                self._verify(file, artefact, resumed=start > 0)
            except (
                requests.ConnectionError,
                requests.Timeout,
                requests.exceptions.ChunkedEncodingError,
                _Broken,
            ) as error:
                failure = str(error)
                self._progress(-file.tell())
            else:
                return
        raise LocalBrokerError(
            f"{artefact.coordinates} could not be fetched from {self._repository} in {_ATTEMPTS} attempts: {failure}. "
            f"Is there a network? Behind a firewall, name your mirror in {REPOSITORY_VARIABLE} or in Maven's settings.xml. "
            "What was fetched is kept; the next start goes on from there"
        )

    def _append(self, file: IO[bytes], artefact: Artefact, start: int) -> None:
        for size, chunk in self._chunks(artefact, start):
            if self._stop.is_set():
                raise Stopped
            if size < start:  # the server ignored the range and sends the whole file
                self._progress(-start)
                file.truncate(start := 0)
            file.seek(0, os.SEEK_END)
            file.write(chunk)
            self._progress(len(chunk))
            if file.tell() > artefact.size:
                raise self._wrong(artefact, f"more than {artefact.size} bytes")
        file.flush()

    def _chunks(self, artefact: Artefact, start: int) -> Iterator[tuple[int, bytes]]:
        """Pieces of the file, each with the offset at which the first of them belongs."""
        url = f"{self._repository.url}/{artefact.coordinates.path}"
        if url.startswith("file:"):
            try:
                yield 0, Path(unquote(urlsplit(url).path)).read_bytes()
            except OSError as error:
                raise LocalBrokerError(
                    f"{artefact.coordinates} is not in {self._repository}: {error.strerror}"
                ) from error
            return
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
            status = response.status_code
            if status in _TRY_AGAIN or status == requests.codes.requested_range_not_satisfiable:
                raise _Broken(f"HTTP status {status}")
            if status in (401, 403, 407):
                raise LocalBrokerError(
                    f"{self._repository} refused {artefact.coordinates} with HTTP status {status}: give its credentials as "
                    f"<server> in Maven's settings.xml, or in {REPOSITORY_VARIABLE} as user:password@"
                )
            if status not in (200, 206):
                raise LocalBrokerError(
                    f"{self._repository} has no {artefact.coordinates} (HTTP status {status} for {url}): "
                    f"name a complete Maven repository in {REPOSITORY_VARIABLE}"
                )
            offset = start if status == 206 else 0
            for chunk in response.iter_content(_CHUNK):
                yield offset, chunk

    def _verify(self, file: IO[bytes], artefact: Artefact, *, resumed: bool) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < artefact.size:
            raise _Broken(f"the connection ended after {size} of {artefact.size} bytes")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest == artefact.sha256:
            return
        file.truncate(0)
        if resumed:  # the part on disk may have been damaged: the whole file decides
            file.seek(0)
            self._progress(-size)
            raise _Broken(f"the continued file has SHA-256 {digest}")
        raise self._wrong(artefact, f"SHA-256 {digest}")

    def _wrong(self, artefact: Artefact, got: str) -> LocalBrokerError:
        return LocalBrokerError(
            f"{artefact.coordinates} from {self._repository} is not the file that the lock names: wanted SHA-256 "
            f"{artefact.sha256} and {artefact.size} bytes, got {got}. It was thrown away. The repository serves something "
            f"else, or somebody changes it on the way: use another one ({REPOSITORY_VARIABLE})"
        )


def _is(artefact: Artefact, path: Path) -> bool:
    if not path.is_file() or path.stat().st_size != artefact.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == artefact.sha256


class _locked:
    """The part file, opened and locked against other processes and threads; waits for its turn."""

    def __init__(self, part: Path) -> None:
        self._part = part

    def __enter__(self) -> IO[bytes]:
        while True:
            file = open(self._part, "a+b")  # noqa: SIM115 - closed by __exit__
            fcntl.flock(file, fcntl.LOCK_EX)
            # The one before us may have renamed the file that we had opened: then it is no longer the part.
            try:
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self._part)):
                    self._file = file
                    return file
            except FileNotFoundError:
                pass
            file.close()

    def __exit__(self, *_: object) -> None:
        self._file.close()
