"""An audit: reads two topics and the sketches between them, and finds what came of each message."""

from __future__ import annotations

import contextlib
import functools
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from rmqio.audit.findings import Findings, Order, Place, match
from rmqio.audit.hops import SINK, SOURCE, Candidate, Comparison, Edge, Fault, Passed, edges_of, passed_of
from rmqio.audit.identity import Identity, candidates, hash_of, origin_of, outside, parse_identity, why_in_doubt
from rmqio.audit.reading import Entries, Side, Sketches, Spool, bounds_of, choose, parts_of, read_into, sample
from rmqio.audit.sketch import BLOCK_BITS, BUCKET_BITS, NO_QUEUE, Unit, Units, mixed_one, units_of
from rmqio.errors import LocalError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue, Record
from rmqio.start import StartFrom, StopAt

# The request of an audit, and its result.

CLOCKS_MS: Final = 60_000
"""How far the clocks of two brokers may be apart."""
_Known = tuple[Fault, set[tuple[MessageQueue, int]], set[tuple[MessageQueue, int]]]
"""A fault, and the places of its lost and of its doubled messages."""


@dataclass(frozen=True)
class Request:
    """Describes an audit.

    Args:
      steps: labels of transforms that can be a part of ids. With those that the sketches name, they are all there are;
        empty: there can be others.
      by: as `--by`.
      grace_ms: messages that were stored less long ago are on their way, and not lost.
      most_rows: of a topic in memory; more go to files.
    """

    from_topic: str
    to_topic: str
    dead_letter_topic: str | None = None
    audit_topic: str | None = None
    steps: tuple[str, ...] = ()
    by: str = "auto"
    start: StartFrom = field(default_factory=StartFrom.earliest)
    stop: StopAt = field(default_factory=StopAt.latest)
    window_ms: int = 60_000
    late_ms: int = 60_000
    grace_ms: int = 0
    most_rows: int = 8_000_000
    folder: Path | None = None


@dataclass(kw_only=True)
class Result:
    """The result of an audit."""

    request: Request
    identity: Identity
    findings: Findings
    source: Side
    sink: Side
    letters: Side | None
    hops: dict[str, Passed]
    faults: list[Fault]
    edges: list[Edge]
    delays: dict[Edge, list[tuple[Unit, float]]]
    units_judged: int
    units_left_out: int
    notes: list[str]
    checked_ms: int
    unexplained: int = 0
    """Messages of the second topic that may be some that look lost, by a label that is not known."""
    doubt: str = ""
    """Why messages that look lost may have arrived; empty: they are lost."""

    @property
    def foreign_is_wrong(self) -> bool:
        """Whether the source was read as a whole, so that each message of the sink must be of it."""
        return self.source.is_to_end and not self.source.skipped and not any(self.source.begins.values())

    @property
    def wrong(self) -> dict[str, int]:
        """The kinds of faults with their counts; empty: all arrived, once."""
        total = self.findings.total
        found = {
            "lost": total.lost,
            "doubled": total.doubled,
            "foreign": total.foreign if self.foreign_is_wrong else 0,
            "unidentified": self.source.unidentified + self.sink.unidentified,
        }
        return {name: count for name, count in found.items() if count}

    def edge_of(self, place: Place) -> list[Edge]:
        """Return between which hops it happened; several: it is one of them; empty: it is not known."""
        kind = "doubled" if place.kind == "doubled" else "lost"
        exact, possible = [], []
        for fault, lost, doubled in self._faults_of(place):
            messages = lost if kind == "lost" else doubled
            if (place.queue, place.offset) in messages:
                exact.append(fault.edge)
            elif not messages and (fault.doubled if kind == "doubled" else fault.lost + fault.unclear):
                possible.append(fault.edge)
        return exact or possible

    def _faults_of(self, place: Place) -> Iterator[_Known]:
        for unit in (Unit(place.queue, place.offset >> BLOCK_BITS), Unit(NO_QUEUE, place.id >> (64 - BUCKET_BITS))):
            yield from self._by_unit.get(unit, ())

    @functools.cached_property
    def _by_unit(self) -> dict[Unit, list[_Known]]:
        """The faults with their messages, for look-ups: there can be hundred thousands."""
        found: dict[Unit, list[_Known]] = {}
        for fault in self.faults:
            lost, doubled = (
                {(each.queue, each.offset) for each in some} for some in (fault.lost_messages, fault.doubled_messages)
            )
            found.setdefault(fault.unit, []).append((fault, lost, doubled))
        return found

    def slowest_edge(self, place: Place) -> Edge | None:
        """Return the edge on which the messages around a place took the longest; None: it is not known."""
        unit = Unit(place.queue, place.offset >> BLOCK_BITS)
        there = [(delay, edge) for edge, found in self.delays.items() for each, delay in found if each == unit]
        return max(there, key=lambda item: item[0])[1] if there else None


_SAMPLE: Final = 200
"""Messages of each queue that choose the identity."""
_COPIES: Final = 3
"""Further values of a message that are looked for among messages of no message there."""
_MOST_COPIED: Final = 5_000_000
"""Messages for which they are looked for, since each takes 3 us."""
_NEVER_MS: Final = 1 << 62


def audit(client: QueueClient, request: Request, tell: Callable[[str], None] = lambda text: None) -> Result:
    """Audit once. Raises `RmqioError`, also if messages look lost that may have arrived by an id that is not known."""
    with Checker(client, request, tell) as checker:
        checker.read()
        result = checker.result()
        if result.doubt:
            raise LocalError(
                f"{counted(result.findings.total.lost, 'message')} of {request.from_topic} would count as lost, but "
                f"{counted(result.unexplained, 'message')} of {request.to_topic} cannot be told to be one there by "
                f"{result.identity.name}: {result.doubt}. Or say with --by what else identifies a message, e.g. "
                "--by=keys"
            )
        return result


class Checker:
    """Reads and compares; `read` goes on where it was. A context manager, which deletes its files."""

    def __init__(
        self, client: QueueClient, request: Request, tell: Callable[[str], None], *, is_live: bool = False
    ) -> None:
        self._client, self._request, self._tell, self._is_live = client, request, tell, is_live
        self._stack = contextlib.ExitStack()
        self.source = Side(request.from_topic, self._spool())
        self.sink = Side(request.to_topic, self._spool())
        self.letters = None if request.dead_letter_topic is None else Side(request.dead_letter_topic, self.sink.spool)
        self._origins: dict[MessageQueue, array[int]] = {}
        """The offsets that dead letters name."""
        self._identity: Identity | None = None
        self._is_sure = False
        self._arrived_by: set[str] = set()
        """The labels by which messages were found in the sink."""
        self._sketches = Sketches()
        self._notes: list[str] = []
        self.checked_ms = 0
        """When `read` began last."""

    def _spool(self) -> Spool:
        return self._stack.enter_context(Spool(self._request.most_rows, self._request.folder))

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self) -> None:
        """Read what is new, the sink after the source's end is known: what arrived meanwhile is no loss."""
        request, self.checked_ms = self._request, int(time.time() * 1000)
        ranges: Mapping[MessageQueue, range] = self._new(self.source, request.start, request.stop)
        if request.audit_topic is not None:
            self._sketches.read(self._client, request.audit_topic)
        self._tell(f"reading {request.to_topic}")
        sinks = self._new(self.sink, _from_time(request.start), StopAt.latest())
        # The sink can have messages that were sent after the source's end was taken.
        self.source.is_to_end = all(self._client.max_offset(queue) <= each.stop for queue, each in ranges.items())
        # With --by=auto, the sink is read first: all candidates identify messages by the same property there.
        of_sink = parse_identity("id" if request.by == "auto" else request.by).of_sink
        read_into(self._client, self.sink, sinks, of_sink)
        if not self._is_sure:
            ranges = self._choose(ranges)
        identity = self.identity
        if self.letters is not None:
            letters = self._new(self.letters, _from_time(request.start), StopAt.latest())
            read_into(self._client, self.letters, letters, self._of_letter)
        messages = counted(sum(map(len, ranges.values())), "message")
        self._tell(f"reading {request.from_topic}: {messages} by {identity.name}")
        read_into(self._client, self.source, ranges, identity.of_source)
        self.source.note_letters(self._origins)
        if request.audit_topic is not None:
            self._sketches.read(self._client, request.audit_topic)  # of what has arrived meanwhile

    def _of_letter(self, letter: Record) -> str | None:
        origin = origin_of(letter)
        if origin is not None:
            self._origins.setdefault(origin[0], array("q")).append(origin[1])
        return self.identity.of_letter(letter)

    def forget(self, before_ms: int) -> None:
        """Forget messages that were stored before a time. Only for a check without files."""
        source, rows = self.source, self.source.spool.all()
        is_old = rows["time"] < before_ms
        kept, old = rows[~is_old], rows[is_old]
        source.spool.keep(kept)
        for number in np.unique(old["queue"]).tolist():
            queue = source.spool.queues[number]
            highest = int(old["offset"][old["queue"] == number].max())
            source.begins[queue] = max(source.begins.get(queue, 0), highest + 1)
        rows = self.sink.spool.all()
        # By the clock of its broker, a message can have come before it was sent.
        is_near = (rows["time"] < before_ms) & (rows["time"] >= before_ms - CLOCKS_MS)
        is_wanted = rows["time"] >= before_ms
        is_wanted[is_near] = np.isin(rows["id"][is_near], kept["id"])
        self.sink.spool.keep(rows[is_wanted])
        source.forget_unidentified(source.begins)
        for side in (self.sink, self.letters):
            if side is not None:
                side.forget_unidentified(side.ends)
        self._sketches.forget(source.begins)
        topics = {queue.topic for queue in source.begins}
        for queue in [*self._origins]:
            if queue in source.begins:
                newer = (offset for offset in self._origins[queue] if offset >= source.begins[queue])
                self._origins[queue] = array("q", newer)
            elif queue.topic not in topics:  # letters of other topics
                del self._origins[queue]

    def _new(self, side: Side, start: StartFrom, stop: StopAt) -> dict[MessageQueue, range]:
        """The ranges that have not been read yet."""
        found = {}
        for queue, each in bounds_of(self._client, side.topic, start, stop).items():
            begin, end = each.start, each.stop
            if queue in side.ends:
                begin = side.ends[queue]
            found[queue] = range(begin, max(begin, end))
        return found

    def _candidates(self) -> list[Identity]:
        of_sketches = (sketch.key.steps for sketch in self._sketches)
        return candidates(dict.fromkeys((*self._request.steps, *of_sketches)))

    @property
    def identity(self) -> Identity:
        assert self._identity is not None, "read comes first"
        return self._identity

    @property
    def is_unsure(self) -> bool:
        """Whether no message has arrived by any of the identities that there are to choose from."""
        return not self._is_sure

    def _choose(self, ranges: Mapping[MessageQueue, range]) -> Mapping[MessageQueue, range]:
        """Choose the identity, and return the ranges to read: all from the beginning if there was another one before.

        In live mode, nothing may have arrived yet. Then the choice is made again at the next read.
        """
        request, source = self._request, self.source
        if request.by not in ("auto", "place"):
            self._identity, self._is_sure = parse_identity(request.by), True
            return ranges
        among = self._candidates()
        whole = {queue: range(source.begins.get(queue, each.start), each.stop) for queue, each in ranges.items()}
        found = sample(self._client, whole, _SAMPLE)
        identity, count = choose(found, self.sink.spool, among if request.by == "auto" else among[1:])
        self._is_sure = count > 0
        if count:
            self._arrived_by.add(identity.steps)
        is_there = found and (self.sink.spool.count or self.sink.unidentified)
        if request.by == "auto" and not count and is_there and not self._is_live:
            raise LocalError(
                f"no message of {request.to_topic} has an id of {request.from_topic}, neither the same unique id nor "
                "one that rmqio derives from a place: use --by to say what identifies a message in both, e.g. "
                "--by=keys or --by=field:order_id. Labels of MapRecords and of SQL are a part of such an id: give "
                "--audit_topic, or --steps"
            )
        if self._identity is None:
            self._identity = identity
            return ranges
        if not self._is_sure:
            return ranges
        self._identity = identity
        source.clear()
        if self.letters is not None:
            rows = self.sink.spool.all()
            self.sink.spool.keep(rows[~np.isin(rows["queue"], list(self._letter_numbers()))])
            self.letters.clear()
            self.letters.ends.clear()
        return whole

    # ---- what came of them ------------------------------------------------------------------------------------------

    def result(self, old_before_ms: int = 0) -> Result:
        """Compare what was read so far; `old_before_ms`: the time that `forget` is about to be called with."""
        request, identity = self._request, self.identity
        pending_since_ms = self.checked_ms - request.grace_ms if request.grace_ms else _NEVER_MS
        findings = Findings(request.window_ms, request.late_ms, pending_since_ms, old_before_ms)
        letters = self._letter_numbers()
        self._unify(letters)
        expected, arrived = Units(), Units()
        diverted: list[tuple[MessageQueue, int, int]] = []
        waits: set[Unit] = set()
        sources, sinks = self.source.spool.queues, self.sink.spool.queues
        with Order(request.most_rows, request.folder) as order:
            for sent, got in parts_of(self.source.spool, self.sink.spool):
                found = match(sent, got, letters)
                findings.add(found, sources, sinks, letters)
                is_letter = np.isin(found.got["queue"], list(letters))
                order.add(found.sent[~is_letter], found.got[~is_letter])
                if request.audit_topic is not None:
                    for rows, times in ((sent, sent), (found.sent, found.got), (found.doubled_of, found.doubled)):
                        waits |= units_of(rows[times["time"] >= pending_since_ms], sources)
                    expected.add(sent, sources, sent["time"])
                    arrived.add(found.sent[~is_letter], sources, found.got["time"][~is_letter])
                    arrived.add(found.doubled_of, sources, found.doubled["time"])
                    diverted += [
                        (sources[queue], offset, id_) for id_, queue, offset, _ in found.sent[is_letter].tolist()
                    ]
            for pairs in order.disorder():
                findings.add_disorder(pairs, sources, sinks)
        self._find_copies(findings, identity, arrived)
        for queue, offsets in (*self.source.without_identity.items(), *self.source.in_letters.items()):
            expected.add_offsets(queue, offsets)
        return self._with_hops(findings, identity, expected, arrived, diverted, waits)

    def _unify(self, letters: set[int]) -> None:
        """Give messages whose ids have other labels the identity that they have by the chosen ones: those of another
        branch of the pipeline, or of a run in which a function had another label.
        """
        source, sink = self.source.spool, self.sink.spool
        others = [each for each in self._candidates()[1:] if each.steps != self.identity.steps]
        if self.identity.of_copy is None or self._is_on_disk:
            return
        sent, got = source.all(), sink.all()
        is_known, is_letter = np.isin(got["id"], sent["id"]), np.isin(got["queue"], list(letters))
        if not self._arrived_by and (is_known & ~is_letter).any():
            self._arrived_by.add(self.identity.steps)
        left = np.flatnonzero(~is_known & ~is_letter)
        if self._is_live:  # this is repeated at each look: copies of what has arrived are of no message there
            sent = sent[~np.isin(sent["id"], got["id"])]
        for other in others:
            if not len(left) or not len(sent):
                return
            hashes = self._hashes(other, sent, 0)
            order = np.argsort(hashes)
            places = order[np.minimum(np.searchsorted(hashes, got["id"][left], sorter=order), len(order) - 1)]
            is_there = hashes[places] == got["id"][left]
            got["id"][left[is_there]] = sent["id"][places[is_there]]
            left = left[~is_there]
            if is_there.any():
                self._arrived_by.add(other.steps)

    @property
    def _is_on_disk(self) -> bool:
        return self.source.spool.is_on_disk or self.sink.spool.is_on_disk

    def _hashes(self, identity: Identity, sent: Entries, number: int) -> npt.NDArray[np.uint64]:
        """The hashes of the ids of a value of each row, by an identity whose ids are derived from places."""
        assert identity.of_copy is not None
        queues = self.source.spool.queues
        places = zip(sent["queue"].tolist(), sent["offset"].tolist(), strict=True)
        hashes = [hash_of(identity.of_copy(queues[queue], offset, number)) for queue, offset in places]
        return np.frombuffer(b"".join(hashes), ">u8").astype(np.uint64)

    def _find_copies(self, findings: Findings, identity: Identity, arrived: Units) -> None:
        """Find copies that have an id of their own: a function gave several values for one value of a batch."""
        if identity.of_copy is None or self.source.spool.count > _MOST_COPIED:
            return
        since_ms = self.checked_ms - CLOCKS_MS
        if self._is_live and all(place.time_ms >= since_ms for place in findings.places["foreign"]):
            return  # those of messages that were sent after the source's end was taken
        queues = self.source.spool.queues
        for number in range(1, _COPIES + 1):
            before = len(findings.places["foreign"])
            if not before:
                return
            for (sent,) in parts_of(self.source.spool):
                rows, came = findings.known_copies(sent, queues, self._hashes(identity, sent, number))
                arrived.add(rows, queues, came)
            if len(findings.places["foreign"]) == before:
                return

    def _letter_numbers(self) -> set[int]:
        topic = None if self.letters is None else self.letters.topic
        return {number for number, queue in enumerate(self.sink.spool.queues) if queue.topic == topic}

    def _with_hops(
        self,
        findings: Findings,
        identity: Identity,
        expected: Units,
        arrived: Units,
        diverted: Sequence[tuple[MessageQueue, int, int]],
        waits: set[Unit],
    ) -> Result:
        request = self._request
        hops = passed_of(self._sketches, request.from_topic)
        notes = list(self._notes)
        if request.audit_topic is not None and not hops:
            notes.append(f"{request.audit_topic} has no sketch of messages of {request.from_topic}")
        if not self._sketches.is_whole:
            notes.append(
                f"retention has deleted messages of {request.audit_topic}: what they had counted looks lost or doubled "
                "at its hops, unless a later one has counted it again"
            )
        edges = edges_of(hops)
        result = Result(
            request=request,
            identity=identity,
            findings=findings,
            source=self.source,
            sink=self.sink,
            letters=self.letters,
            hops=hops,
            faults=[],
            edges=edges,
            delays={},
            units_judged=0,
            units_left_out=0,
            notes=notes,
            checked_ms=self.checked_ms,
        )
        self._weigh(result)
        for by_id in (False, True):
            of_kind = {name: passed.units for name, passed in hops.items() if passed.by_id == by_id}
            if not of_kind:
                continue
            totals = {**of_kind, SOURCE: expected.of(by_id=by_id), SINK: arrived.of(by_id=by_id)}
            units = {unit for each in totals.values() for unit in each}
            judged = self._judged(units, waits, by_id=by_id)
            places = findings.places
            gone = [(each.queue, each.offset, each.id) for each in places["lost"]]
            letters = [*diverted]
            if not by_id:
                letters += [(queue, offset, 0) for queue, some in self.source.in_letters.items() for offset in some]
            more = [(each.queue, each.offset, each.id) for each in places["doubled"]]
            own = [edge for edge in edges if edge.hop in of_kind or set(edge.before) & of_kind.keys()]
            comparison = Comparison(totals, own, *(_by_unit(some, by_id) for some in (gone, more, letters)))
            result.faults += comparison.faults(judged)
            result.units_judged += len(judged)
            result.units_left_out += len(units) - len(judged)
            if not by_id:
                result.delays |= comparison.delays(judged)
        return result

    def _weigh(self, result: Result) -> None:
        """Decide by the table of `rmqio.audit.identity` whether what looks lost is."""
        request, total, identity = self._request, result.findings.total, result.identity
        if not total.lost or not total.foreign:
            return
        if identity.of_copy is None:
            if not total.arrived:
                result.notes.append(
                    f"nothing has arrived by {identity.name}: if that is not equal in both topics, --by says what is"
                )
            return
        tried = [identity] if self._is_on_disk else self._candidates()[1:]
        arrived = self._arrived_by or ({identity.steps} if total.arrived else set())
        why = why_in_doubt(request.steps, self._labels_of_last(result), [each.steps for each in tried], arrived)
        if not why:
            labels = ", ".join(map(repr, request.steps))
            result.notes.append(f"--steps has the labels {labels}: messages that arrived by another label look lost")
            return
        ranges = {}
        for queue, end in self.source.ends.items():
            low = max(self.source.begins[queue], self._client.min_offset(queue))
            ranges[queue] = range(low), range(end, max(end, self._client.max_offset(queue)))
        foreign = result.findings.places["foreign"]
        explained = outside({place.id for place in foreign}, tried, ranges)
        result.unexplained = total.foreign - sum(place.id in explained for place in foreign)
        result.doubt = why if result.unexplained else ""

    def _labels_of_last(self, result: Result) -> set[str]:
        """The labels that the range's messages had at the last hops. There can be more of them behind."""
        last = {name for edge in result.edges if edge.hop == SINK for name in edge.before}
        found = set()
        for key, _, _ in self._sketches:
            unit = Unit(MessageQueue(key.topic, key.broker, key.queue_id), key.block)
            begin, end = (each.get(unit.queue, 0) for each in (self.source.begins, self.source.ends))
            if key.hop in last and unit.offsets.stop > begin and unit.offsets.start < end:
                found.add(key.steps)
        return found

    def _judged(self, units: set[Unit], waits: set[Unit], *, by_id: bool) -> set[Unit]:
        """Leave out units with young messages, whose sketches may come later than they, deleted ones, or others than
        those of the range.
        """
        ends = {queue: self._client.max_offset(queue) for queue in self.source.ends}
        begins = self.source.begins
        is_whole = {queue: end >= ends[queue] for queue, end in self.source.ends.items()}
        if by_id:
            is_judged = all(is_whole.values()) and not any(begins.values()) and not waits
            return units if is_judged else set()
        return {
            unit
            for unit in units
            if unit.queue in ends
            and unit not in waits
            and unit.offsets.start >= begins[unit.queue]
            and (unit.offsets.stop <= self.source.ends[unit.queue] or is_whole[unit.queue])
        }


def _by_unit(messages: Sequence[tuple[MessageQueue, int, int]], by_id: bool) -> dict[Unit, list[Candidate]]:
    found: dict[Unit, list[Candidate]] = {}
    for queue, offset, id_ in messages:
        unit = Unit(NO_QUEUE, id_ >> (64 - BUCKET_BITS)) if by_id else Unit(queue, offset >> BLOCK_BITS)
        found.setdefault(unit, []).append(Candidate(queue, offset, id_ if by_id else mixed_one(offset)))
    return found


def _from_time(start: StartFrom) -> StartFrom:
    """The start in the second topic: what came of a message was stored later."""
    if start.kind != "timestamp":
        return StartFrom.earliest()
    return StartFrom.timestamp(max(0, start.timestamp_ms - CLOCKS_MS))


__all__ = ["Checker", "Request", "Result", "audit"]
