"""Compares a sink with what should be in it: each thing once, with the right value; or lost, doubled, wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from bench.peers.works import Work
from rmqio.model import Record


class Ledger(NamedTuple):
    """The difference between what should have come out and what did."""

    right: int
    """Things that came at least once with the right value."""
    lost: int
    """Things of which no message came with the right value."""
    doubled: int
    """Right messages beyond the first one of a thing."""
    wrong: int
    """Messages of nothing that is wanted, or with another value."""

    def __str__(self) -> str:
        told = [f"{count:,} {name}" for name, count in zip(self._fields[1:], self[1:], strict=True) if count]
        return ", ".join(told) or "each once"


def compared(work: Work, records: Iterable[Record]) -> Ledger:
    """Compares the messages of a sink with what is wanted."""
    seen: Counter[str] = Counter()
    wrong = 0
    for record in records:
        found = work.read(json.loads(record.body))
        if found is None:
            continue
        name, value = found
        if work.wanted.get(name) == value:
            seen[name] += 1
        else:
            wrong += 1
    return Ledger(len(seen), len(work.wanted.keys() - seen.keys()), sum(seen.values()) - len(seen), wrong)
