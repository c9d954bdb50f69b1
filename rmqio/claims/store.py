"""The objects of a claim check, in any of Beam's file systems."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from rmqio.claims.check import (
    ClaimCheck,
    ClaimStoreError,
    Reference,
    is_reference,
    path_of,
    reference_of,
    resolved,
    with_reference,
)
from rmqio.claims.cleaning import remove
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, Record

_KNOWN: Final = 10_000
_THREADS: Final = 8
_RAW: Final = {"mime_type": "application/octet-stream", "compression_type": CompressionTypes.UNCOMPRESSED}


class ClaimStore:
    """Puts bodies into the folder, and gets them back. Belongs to one thread.

    Args:
      clock: Unix seconds.
    """

    def __init__(self, check: ClaimCheck, clock: Callable[[], float] = time.time) -> None:
        self._check = check
        self._clock = clock
        self._known: dict[Reference, None] = {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def is_big(self, message: Message) -> bool:
        """Whether the message's body goes to the folder."""
        return isinstance(message.body, bytes) and len(message.body) > self._check.above_bytes

    def put(self, message: Message) -> Message:
        """Write the body, and return the message with a reference instead. The object is complete when this returns.

        The same body on the same day is one object, however often it is written.

        Raises `LocalError` for a body over `max_bytes`, and `ClaimStoreError` if the object cannot be written: then the
        message must not be sent.
        """
        body = message.body
        if len(body) > self._check.max_bytes:
            raise LocalError(f"claim check: the body has {len(body)} bytes; max_bytes is {self._check.max_bytes}")
        reference = Reference.of(body, self._clock())
        if reference not in self._known:
            try:
                self._write(reference, body)
            except Exception as error:  # clients of object stores raise errors of their own
                where = self._path(reference)
                raise ClaimStoreError(f"claim check: cannot write {where}: {type(error).__name__}: {error}") from error
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[reference] = None
        return with_reference(message, reference, self._check.path)

    def _write(self, reference: Reference, body: bytes) -> None:
        path = self._path(reference)
        if FileSystems.exists(path):
            return
        # Under another name first: a writer that is killed must not leave a part of it under the name that counts.
        part = f"{path}.{uuid.uuid4().hex}.part"
        with FileSystems.create(part, **_RAW) as file:
            file.write(body)
        try:
            FileSystems.rename([part], [path])
        except Exception:
            if not FileSystems.exists(path):  # another writer can have been faster
                raise
            remove([part])

    # -- reading ------------------------------------------------------------------------------------------------------

    def resolve(self, records: Sequence[Record]) -> tuple[list[Record], dict[int, SerdeError]]:
        """Return the records with their bodies, in order, and by position the errors of those that have none.

        Raises `ClaimStoreError` if the folder cannot be read: then no record is at fault.
        """
        wanted = {position: record for position, record in enumerate(records) if is_reference(record)}
        if not wanted:
            return list(records), {}
        if len(wanted) == 1:
            found = [self._get(record) for record in wanted.values()]
        else:
            with ThreadPoolExecutor(min(_THREADS, len(wanted))) as pool:
                found = list(pool.map(self._get, wanted.values()))
        made = dict(zip(wanted, found, strict=True))
        errors = {position: each for position, each in made.items() if isinstance(each, SerdeError)}
        whole = [made.get(position, record) for position, record in enumerate(records)]
        return [each for each in whole if isinstance(each, Record)], errors

    def _get(self, record: Record) -> Record | SerdeError:
        try:
            reference = reference_of(record, self._check.max_bytes)
            body = self._read(reference)
            reference.check(body)
        except SerdeError as error:
            return error
        return resolved(record, body)

    def _read(self, reference: Reference) -> bytes:
        path = self._path(reference)
        try:
            with FileSystems.open(path, **_RAW) as file:
                parts, left = [], reference.size + 1  # a longer object is found out without reading all of it
                while left > 0 and (part := file.read(left)):
                    parts.append(part)
                    left -= len(part)
                return b"".join(parts)
        except Exception as error:
            if self._is_missing(path):
                raise SerdeError(
                    f"claim check: the object {path} is missing: it was removed, or the folder is not the writer's"
                ) from error
            raise ClaimStoreError(f"claim check: cannot read {path}: {type(error).__name__}: {error}") from error

    def _is_missing(self, path: str) -> bool:
        """Whether the object is missing, and not the whole folder: a mount that is away loses no message.

        An empty folder can be the place where it is mounted. `clean` leaves none empty: the days stay.
        """
        try:
            folder = self._check.path
            return not FileSystems.exists(path) and ("://" in folder or bool(os.listdir(folder)))
        except Exception:  # noqa: BLE001  # as above: it does not answer
            return False

    def _path(self, reference: Reference) -> str:
        return path_of(self._check.path, reference)
