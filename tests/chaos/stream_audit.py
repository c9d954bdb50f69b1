"""The fate of the messages in a stream's state and sinks: pure, over what is stored in the source and in the sinks.

State is exactly once on every runner. What a stream sends before it is killed may be sent again: by Spark the same, by
Flink what came of the same messages in another order.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmqio.model import MessageQueue
from tests.chaos.audit import Audit
from tests.chaos.stream_pipeline import WINDOW_S, digest_of, key_of

Window = tuple[str, int]
"""Key, and start in Unix seconds."""


class Stored(NamedTuple):
    """A message of the source."""

    place: str
    id: str
    event_ms: int

    @property
    def key(self) -> str:
        return key_of(self.id)

    @property
    def window(self) -> Window:
        return self.key, self.event_ms // (1000 * WINDOW_S) * WINDOW_S


class Sunk(NamedTuple):
    """A message of a sink, in the order of its queue."""

    queue: MessageQueue
    id: str
    body: bytes


def wanted_windows(stored: Iterable[Stored]) -> dict[Window, set[str]]:
    """The places that each window must have."""
    found: dict[Window, set[str]] = {}
    for each in stored:
        found.setdefault(each.window, set()).add(each.place)
    return found


def wanted_keys(stored: Iterable[Stored]) -> dict[str, set[str]]:
    """The places that each key must have."""
    found: dict[str, set[str]] = {}
    for each in stored:
        found.setdefault(each.key, set()).add(each.place)
    return found


def audit_sunk(title: str, sunk: Sequence[Sunk]) -> Audit:
    """A copy has the id and the contents of what it is a copy of."""
    by_id: dict[str, set[bytes]] = {}
    ids: dict[bytes, set[str]] = {}
    for each in sunk:
        by_id.setdefault(each.id, set()).add(each.body)
        ids.setdefault(each.body, set()).add(each.id)
    return Audit(
        title,
        {"stored": len(sunk), "copies too many": len(sunk) - len(by_id)},
        {
            "of one id and several contents": [id_ for id_, bodies in by_id.items() if len(bodies) > 1],
            "of one content and several ids": [sorted(those) for those in ids.values() if len(those) > 1],
        },
    )


def audit_copied(sunk: Sequence[Sunk], stored: Sequence[Stored]) -> Audit:
    """All of the source is in the sink, each queue's first copies in their order."""
    wanted = {each.place: each.id for each in stored}
    seen: set[str] = set()
    strange, disorder = [], []
    highest: dict[tuple[MessageQueue, str], int] = {}
    for each in sunk:
        (_, broker, queue_id), offset, id_ = json.loads(each.body)
        place = f"{broker}/{queue_id}/{offset}"
        if wanted.get(place) != id_ or each.id != place:
            strange.append((place, id_, each.id))
        if place in seen:
            continue
        seen.add(place)
        line = each.queue, f"{broker}/{queue_id}"
        if offset < highest.get(line, -1):
            disorder.append((each.queue, place))
        highest[line] = max(offset, highest.get(line, -1))
    return Audit(
        "copied",
        {"copied": len(seen)},
        {"lost": sorted(wanted.keys() - seen), "never stored": strange, "out of order": disorder},
    )


def panes_of(sunk: Iterable[Sunk]) -> dict[Window, dict[int, set[tuple[str, ...]]]]:
    """By window and number of the pane: the places, in each version of it that there is."""
    found: dict[Window, dict[int, set[tuple[str, ...]]]] = {}
    for each in sunk:
        body = json.loads(each.body)
        panes = found.setdefault((body["key"], body["start_s"]), {})
        panes.setdefault(body["pane"], set()).add(tuple(body["places"]))
    return found


def audit_panes(sunk: Sequence[Sunk], stored: Sequence[Stored], *, repeats: bool) -> Audit:
    """Each message is in its window, once, and in the last pane of it; panes grow.

    Args:
      sunk: all panes.
      stored: all that is in the source.
      repeats: whether a pane that is sent again must be the same.
    """
    wanted, found = wanted_windows(stored), panes_of(sunk)
    lost, strange, doubled, shrunk = [], [], [], []
    several = []
    for window, panes in found.items():
        due = wanted.get(window, set())
        for number, versions in panes.items():
            if len(versions) > 1:
                several.append((window, number))
            for places in versions:
                doubled += [(window, place) for place, n in collections.Counter(places).items() if n > 1]
                strange += [(window, place) for place in set(places) - due]
    for window, due in wanted.items():
        panes = found.get(window, {})
        whole = {number for number, versions in panes.items() if any(set(places) == due for places in versions)}
        if not whole:
            have = max((set(places) for versions in panes.values() for places in versions), key=len, default=set())
            lost += [(window, place) for place in sorted(due - have)] or [(window, "no pane has all of it")]
        elif repeats and max(panes) not in whole:
            shrunk.append((window, max(panes), sorted(whole)))
    panes_sent = sum(len(versions) for panes in found.values() for versions in panes.values())
    return Audit(
        "windows",
        {
            "windows": len(found),
            "panes": panes_sent,
            "windows of several panes": sum(len(panes) > 1 for panes in found.values()),
            "messages in them": sum(map(len, wanted.values())),
            "panes told in several ways": len(several),
        },
        {
            "lost": lost,
            "in a wrong window": strange,
            "counted twice": doubled,
            "of which the last pane is not all": shrunk,
            "told in several ways": several if repeats else [],
        },
    )


class Count(NamedTuple):
    """A count that a timer has reported of a key."""

    number: int
    total: int
    digest: int


def counts_of(sunk: Iterable[Sunk]) -> dict[str, dict[Count, set[tuple[str, ...]]]]:
    """By key and count: what was new, in each version of it that there is."""
    found: dict[str, dict[Count, set[tuple[str, ...]]]] = {}
    for each in sunk:
        body: dict[str, Any] = json.loads(each.body)
        count = Count(body["number"], body["count"], body["digest"])
        found.setdefault(body["key"], {}).setdefault(count, set()).add(tuple(body["new"]))
    return found


def is_counted(counts: Iterable[Count], due: set[str]) -> bool:
    """Whether one of the counts is that of all that is due."""
    digest = digest_of(due)
    return any(each.total == len(due) and each.digest == digest for each in counts)


def audit_counts(sunk: Sequence[Sunk], stored: Sequence[Stored], *, repeats: bool) -> Audit:
    """State has counted each message once: the last count is that of what is stored, and what was new adds up to it.

    Args:
      sunk: all counts.
      stored: all that is in the source.
      repeats: whether a count that is sent again must be the same.
    """
    wanted, found = wanted_keys(stored), counts_of(sunk)
    too_few, too_many, gaps, several = [], [], [], []
    for key, counts in found.items():
        numbers: collections.Counter[int] = collections.Counter()
        for count, versions in counts.items():
            numbers[count.number] += len(versions)
        several += [(key, number) for number, versions_of in sorted(numbers.items()) if versions_of > 1]
    for key, due in wanted.items():
        counts = found.get(key, {})
        most = max((each.total for each in counts), default=0)
        if most > len(due):
            too_many.append((key, most, len(due)))
        if not is_counted(counts, due):
            too_few.append((key, most, len(due)))
        elif not _adds_up(counts, due):
            gaps.append((key, len(due)))
    return Audit(
        "state",
        {
            "keys": len(found),
            "counts": sum(map(len, found.values())),
            "messages counted": sum(map(len, wanted.values())),
            "counts told in several ways": len(several),
        },
        {
            "keys whose last count is not that of what is stored (count, stored)": too_few,
            "keys with too high a count (count, stored)": too_many,
            "keys whose parts do not add up": gaps,
            "keys that were never sent": sorted(found.keys() - wanted.keys()),
            "told in several ways": several if repeats else [],
        },
    )


def _adds_up(counts: Mapping[Count, Iterable[tuple[str, ...]]], due: set[str]) -> bool:
    """Whether a line of counts leads from nothing to all that is due, and reports each message once."""
    whole = len(due), digest_of(due)
    left = [count for count in counts if (count.total, count.digest) == whole]
    told: dict[Count, tuple[Count | None, tuple[str, ...]]] = dict.fromkeys(left, (None, ()))
    """By count: the one behind it, and what that reported."""
    while left:
        count = left.pop()
        for new in counts[count]:
            before = Count(count.number - 1, count.total - len(new), count.digest - digest_of(new))
            if before == Count(-1, 0, 0):
                return sorted(due) == sorted([*new, *_behind(count, told)])
            if before in counts and before not in told:
                told[before] = count, new
                left.append(before)
    return False


def _behind(count: Count | None, told: Mapping[Count, tuple[Count | None, tuple[str, ...]]]) -> Iterator[str]:
    while count is not None:
        count, new = told[count]
        yield from new
