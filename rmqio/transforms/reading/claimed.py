"""Claim checks in a read: records with references get their bodies before they are decoded."""

from __future__ import annotations

from collections.abc import Callable

from rmqio.claims.check import ClaimCheck
from rmqio.claims.store import ClaimStore
from rmqio.errors import SerdeError
from rmqio.model import Record
from rmqio.transforms.metrics import Count


class ClaimedReads:
    """Gives records with references their bodies. Belongs to one DoFn instance."""

    def __init__(self, check: ClaimCheck) -> None:
        self._store = ClaimStore(check)
        self._read = Count("claims_read")

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
