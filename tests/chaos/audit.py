"""The fate of the messages, from what was acknowledged, what is stored, what was read and what was copied.

All but `audit_topics` is pure: that one is `rmqio audit`, which sees the topics only.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqio.audit.checking import Request, audit
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from tests.chaos.writers import Place
from tests.helpers.ledgers.ledger import Entry, Sent, check


@dataclass(frozen=True)
class Audit:
    """Counts that are reported, and faults that must not be."""

    title: str
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, Sequence[object]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return any(self.faults.values())

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        found = "; ".join(f"{len(of)} {name}: {list(of[:5])}" for name, of in self.faults.items() if of)
        return f"{self.title}: {told}; {found or 'nothing wrong'}"


def audit_stored(
    stored: Sent, acked: Mapping[str, Place], *, tried: Iterable[str], unsure: set[str], ordered: Iterable[str]
) -> Audit:
    """A topic against the ledger of its producers.

    Args:
      stored: all that is in the topic: id by offset, by queue.
      acked: where each acknowledged message is, as its producer was told.
      tried: ids that may be there at all.
      unsure: ids that may be there several times.
      ordered: names of producers of which each queue must hold first copies in the order of their numbers.
    """
    copies = collections.Counter(str(id_) for messages in stored.values() for id_ in messages.values())
    allowed = set(tried)
    many = {id_ for id_, count in copies.items() if count > 1}
    return Audit(
        "stored",
        {
            "acknowledged": len(acked),
            "stored": copies.total(),
            "twice or more": len(many),
            "not acknowledged and stored": len(copies.keys() - acked.keys()),
        },
        {
            "lost": [(id_, place) for id_, place in acked.items() if id_ not in copies],
            "elsewhere": [
                (id_, place)
                for id_, place in acked.items()
                if id_ in copies and stored.get(place.queue, {}).get(place.offset) != id_
            ],
            "never sent": sorted(copies.keys() - allowed),
            "twice without a reason": sorted(many - unsure),
            "out of order": [found for name in ordered for found in _disorder(stored, f"{name}-")],
        },
    )


def _disorder(stored: Sent, prefix: str) -> list[tuple[MessageQueue, int, str]]:
    found = []
    for queue, messages in stored.items():
        seen: set[str] = set()
        highest = ""
        for offset, message in sorted(messages.items()):
            id_ = str(message)
            if not id_.startswith(prefix) or id_ in seen:
                continue
            seen.add(id_)
            if id_ < highest:
                found.append((queue, offset, id_))
            highest = max(highest, id_)
    return found


def audit_read(lives: Sequence[Sequence[Entry]], stored: Sent) -> Audit:
    """Compares the reads of an endless pipeline, in as many lives as it had, with what is stored.

    In one life nothing comes twice; a new one may begin again where the group's offsets were.
    """
    together = check((entry for life in lives for entry in life), stored)
    each = [check(life, stored) for life in lives]
    total = sum(map(len, lives))
    return Audit(
        "read",
        {"read": total, "lives": len(lives), "read again in a new life": len(together.duplicated)},
        {
            "lost": together.lost,
            "never stored": together.strange,
            "twice in one life": [entry for found in each for entry in found.duplicated],
            "out of order": [entry for found in each for entry in found.reordered],
        },
    )


def _entry(message: object) -> Entry:
    assert isinstance(message, Entry)
    return message


def audit_copies(copies: Sent, reads: Sequence[Entry], stored: Sent, *, failed_runs: int) -> Audit:
    """Checks the copies that bounded pipelines, each where the last one ended, have made in another topic.

    Args:
      copies: all that is in that topic: an `Entry` of the original by offset, by queue.
      reads: what the runs have read, in order.
      stored: all that is in the source.
      failed_runs: how many runs have failed; a further one copies again what they had.
    """
    made = collections.Counter(entry for messages in copies.values() for entry in map(_entry, messages.values()))
    read = collections.Counter(reads)
    disorder = []
    for queue, messages in copies.items():
        highest: dict[MessageQueue, int] = {}
        seen: set[Entry] = set()
        for offset, message in sorted(messages.items()):
            entry = _entry(message)
            if entry in seen:
                continue
            seen.add(entry)
            # A message that a later run has copied again may have been first in another queue: that of its key is
            # another one while a broker is away.
            is_again = made[entry] > 1 and read[entry] > 1
            if entry.offset < highest.get(entry.queue, -1) and not is_again:
                disorder.append((queue, offset, entry))
            highest[entry.queue] = max(entry.offset, highest.get(entry.queue, -1))
    found = replace(check(made, stored), reordered=(), skipped=())
    again = sum(count - 1 for count in made.values())
    by_runs = sum(max(min(count, read[entry]) - 1, 0) for entry, count in made.items())
    return Audit(
        "copied",
        {
            "copies": made.total(),
            "runs that failed": failed_runs,
            "copied again by a later run": by_runs,
            "stored twice by one run": again - by_runs,
        },
        {
            "lost": found.lost,
            "never stored": found.strange,
            "never read": [entry for entry in made if not read[entry]],
            "out of order": disorder,
        },
    )


def audit_topics(client: QueueClient, source: str, sink: str, by: str = "id") -> Audit:
    """Compares the source with its copies, by unique id or another identity of `rmqio audit`.

    It knows nothing of runs: copies too many are only a count.
    """
    found = audit(client, Request(source, sink, by=by)).findings
    total = found.total
    return Audit(
        "rmqio audit",
        {"sent": total.sent, "arrived": total.arrived, "copies too many": total.doubled},
        {"lost": found.places["lost"], "of no message of the source": found.places["foreign"]},
    )
