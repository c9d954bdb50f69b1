"""Claim checks in a read: records with references get their bodies before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rmqio.claims.check import ClaimCheck, is_reference, reference_of
from rmqio.claims.store import ClaimStore
from rmqio.errors import SerdeError
from rmqio.model import Record
from rmqio.transforms.metrics import Count

HELD_BYTES: Final = 64 << 20
"""Bytes of bodies that are fetched together: a batch has up to hundreds of references, however big their objects."""


class ClaimedReads:
    """Gives records with references their bodies. Belongs to one DoFn instance."""

    def __init__(self, check: ClaimCheck) -> None:
        self._check = check
        self._store = ClaimStore(check)
        self._read = Count("claims_read")

    def pieces(self, records: list[Record]) -> Iterator[tuple[int, int]]:
        """Begins and ends of the parts of a batch whose bodies are in memory together. At least one, maybe empty."""
        begin = size = 0
        for position, record in enumerate(records):
            more = self._size(record)
            if size + more > HELD_BYTES and position > begin:
                yield begin, position
                begin, size = position, 0
            size += more
        yield begin, len(records)

    def _size(self, record: Record) -> int:
        try:
            return reference_of(record, self._check.max_bytes).size if is_reference(record) else 0
        except SerdeError:
            return 0  # nothing is fetched

    def resolved(
        self, records: list[Record], stamps: list[int], fail: Callable[[Record, SerdeError], None]
    ) -> tuple[list[Record], list[int]]:
        """The records with their bodies, and their stamps. Records without an object go to `fail`, which can raise.

        Raises `ClaimStoreError`.
        """
        found, errors = self._store.resolve(records)
        for position, error in errors.items():
            fail(records[position], error)
        if errors:
            stamps = [stamp for position, stamp in enumerate(stamps) if position not in errors]
        read = sum(one is not other for one, other in zip(found, _without(records, errors), strict=True))
        if read:
            self._read.add(read, (records[0].topic,))
        return found, stamps


def _without(records: list[Record], errors: dict[int, SerdeError]) -> list[Record]:
    return [each for position, each in enumerate(records) if position not in errors] if errors else records
