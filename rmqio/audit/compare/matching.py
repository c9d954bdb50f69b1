"""Pairs the rows of two topics by their hashes: an identity that is there twice is wanted twice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqio.audit.compare.entries import Entries

Numbers = npt.NDArray[Any]


class Matched(NamedTuple):
    """The result of pairing rows with the same hashes."""

    sent: Entries
    """Rows of the first topic that arrived; `got` has those of the second, in the same order."""
    got: Entries
    lost: Entries
    """Rows of the first topic that are not in the second."""
    doubled: Entries
    """Rows of the second topic that are copies too many."""
    doubled_of: Entries
    """The rows of the first topic that they are copies of, in the same order."""
    foreign: Entries
    """Rows of the second topic whose identity is not in the first."""


def match(sent: Entries, got: Entries, letters: Collection[int] = ()) -> Matched:
    """Pair rows: of one identity, the first with the first, and so on, in order of time.

    Args:
      letters: numbers of queues with dead letters. A letter counts only for a message that is not in the second topic:
        one that was sent back, or could not be written to another topic, has a letter and has arrived.
    """
    if not letters:
        return _matched(sent, got)
    is_letter = np.isin(got["queue"], list(letters))
    found = _matched(sent, got[~is_letter])
    rest = _matched(found.lost, got[is_letter])
    return found._replace(
        sent=np.concatenate((found.sent, rest.sent)), got=np.concatenate((found.got, rest.got)), lost=rest.lost
    )


def _matched(sent: Entries, got: Entries) -> Matched:
    sent, got = _sorted(sent), _sorted(got)
    sent_ids, sent_at, sent_counts = _groups(sent)
    got_ids, got_at, got_counts = _groups(got)
    wanted = _looked_up(sent_ids, got_ids, got_counts)
    allowed = _looked_up(got_ids, sent_ids, sent_counts)
    sent_ranks, got_ranks = _ranks(sent_at, sent_counts), _ranks(got_at, got_counts)
    arrives = sent_ranks < np.repeat(wanted, sent_counts)
    allowed_of_each = np.repeat(allowed, got_counts)
    is_due = got_ranks < allowed_of_each
    doubled = got[~is_due & (allowed_of_each > 0)]
    copied = sent[sent_at[np.searchsorted(sent_ids, doubled["id"])]]
    return Matched(sent[arrives], got[is_due], sent[~arrives], doubled, copied, got[allowed_of_each == 0])


def _sorted(rows: Entries) -> Entries:
    rows = rows[np.argsort(rows["id"], kind="stable")]
    again = rows["id"][1:] == rows["id"][:-1]
    if not again.any():
        return rows
    return rows[np.lexsort((rows["offset"], rows["queue"], rows["time"], rows["id"]))]


def _groups(rows: Entries) -> tuple[Numbers, Numbers, Numbers]:
    """The hashes of sorted rows, and for each where it begins and how often it is there."""
    found, at, counts = np.unique(rows["id"], return_index=True, return_counts=True)
    return found, at, counts


def _ranks(at: Numbers, counts: Numbers) -> Numbers:
    """For each row, how many of its hash stand before it."""
    ranks: Numbers = np.arange(int(counts.sum())) - np.repeat(at, counts)
    return ranks


def _looked_up(ids: Numbers, others: Numbers, counts: Numbers) -> Numbers:
    """For each hash, the count of the other side."""
    if not len(others):
        return np.zeros(len(ids), np.int64)
    places = np.minimum(np.searchsorted(others, ids), len(others) - 1)
    return np.where(others[places] == ids, counts[places], 0)
