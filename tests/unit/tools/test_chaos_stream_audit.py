"""The auditor of a stream under faults finds what is wrong with its state and its sinks, and only that."""

from __future__ import annotations

import json
from collections.abc import Callable

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import TimestampedValue

from rmqio.model import MessageQueue, Record
from tests.chaos.audit import Audit
from tests.chaos.stream_audit import Stored, Sunk, audit_copied, audit_counts, audit_panes, audit_sunk
from tests.chaos.stream_pipeline import Told, digest_of, key_of, place_of, told
from tests.helpers.transforms.records import record_of

SINK = MessageQueue("sink", "a", 0)
STORED = [Stored(f"a/0/{n}", "w-0", 1_000 * n) for n in range(4)]
"""One key, one window; the producer has stored its message four times."""
PLACES = [each.place for each in STORED]
KEY = key_of("w-0")


def wrong(audit: Audit) -> set[str]:
    return {name for name, of in audit.faults.items() if of}


def sunk(id_: str, **body: object) -> Sunk:
    return Sunk(SINK, id_, json.dumps(body).encode())


def copy(number: int, id_: str = "w-0") -> Sunk:
    body = json.dumps([["t", "a", 0], number, id_]).encode()
    return Sunk(SINK, f"a/0/{number}", body)


COPIES = [copy(n) for n in range(4)]


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        (COPIES, set()),
        ([*COPIES[:2], *COPIES], set()),  # sent again
        (COPIES[1:], {"lost"}),
        ([COPIES[1], COPIES[0], *COPIES[2:]], {"out of order"}),
        ([*COPIES, copy(7)], {"never stored"}),
        ([*COPIES, copy(3, "w-1")], {"never stored"}),
    ],
)
def test_copies(copies: list[Sunk], expected: set[str]) -> None:
    assert wrong(audit_copied(copies, STORED)) == expected


def test_a_copy_has_the_id_and_the_contents_of_what_it_is_a_copy_of() -> None:
    audit = audit_sunk("copies", [*COPIES, *COPIES])
    assert not audit
    assert audit.counts == {"stored": 8, "copies too many": 4}
    assert wrong(audit_sunk("copies", [*COPIES, COPIES[0]._replace(body=b"[]")])) == {"of one id and several contents"}
    assert wrong(audit_sunk("copies", [*COPIES, COPIES[0]._replace(id="x")])) == {"of one content and several ids"}


def pane(number: int, *places: str, start_s: int = 0) -> Sunk:
    return sunk("any", key=KEY, start_s=start_s, pane=number, places=places)


@pytest.mark.parametrize(
    ("panes", "repeats", "expected"),
    [
        ([pane(0, *PLACES)], True, set()),
        ([pane(0, *PLACES[:2]), pane(1, *PLACES)], True, set()),
        ([pane(0, *PLACES[:2]), pane(0, *PLACES[:2]), pane(1, *PLACES)], True, set()),  # sent again
        ([pane(0, *PLACES[:2])], True, {"lost"}),
        ([], True, {"lost"}),
        ([pane(0, *PLACES[:2]), pane(1, *PLACES[2:])], True, {"lost"}),
        ([pane(0, *PLACES), pane(1, *PLACES, PLACES[0])], True, {"counted twice"}),
        ([pane(0, *PLACES), pane(1, *PLACES[1:])], True, {"of which the last pane is not all"}),
        ([pane(0, *PLACES, "b/0/0")], True, {"lost", "in a wrong window"}),
        ([pane(0, *PLACES), pane(0, PLACES[0], start_s=10)], True, {"in a wrong window"}),
        # Killed, and the messages came in another order
        ([pane(0, *PLACES[:2]), pane(1, *PLACES[:3]), pane(0, *PLACES)], True,
         {"told in several ways", "of which the last pane is not all"}),
        ([pane(0, *PLACES[:2]), pane(1, *PLACES[:3]), pane(0, *PLACES)], False, set()),
    ],
)  # fmt: skip
def test_windows(panes: list[Sunk], repeats: bool, expected: set[str]) -> None:
    assert wrong(audit_panes(panes, STORED, repeats=repeats)) == expected


def count(number: int, *places: str, new: int) -> Sunk:
    """`places`: all until then; `new`: how many of them are new."""
    told = places[len(places) - new :]
    return sunk("any", key=KEY, number=number, count=len(places), digest=digest_of(places), new=told)


LINE = [count(0, *PLACES[:1], new=1), count(1, *PLACES[:3], new=2), count(2, *PLACES, new=1)]
TOO_FEW = "keys whose last count is not that of what is stored (count, stored)"
TOO_MANY = "keys with too high a count (count, stored)"
GAPS = "keys whose parts do not add up"


@pytest.mark.parametrize(
    ("counts", "repeats", "expected"),
    [
        (LINE, True, set()),
        ([*LINE[:2], *LINE], True, set()),  # sent again
        (LINE[:2], True, {TOO_FEW}),
        ([], True, {TOO_FEW}),
        ([*LINE[:1], *LINE[2:]], True, {GAPS}),
        ([*LINE, count(3, *PLACES, PLACES[0], new=1)], True, {TOO_MANY}),
        ([*LINE[:2], count(2, *PLACES[:3], PLACES[0], new=1)], True, {TOO_FEW}),
        # Killed, and the messages came in another order
        ([count(0, *PLACES[1:3], new=2), *LINE], True, {"told in several ways"}),
        ([count(0, *PLACES[1:3], new=2), *LINE], False, set()),
        # One told twice, another not at all
        ([LINE[0], sunk("any", key=KEY, number=1, count=4, digest=digest_of(PLACES), new=[*PLACES[:2], PLACES[3]])],
         True, {GAPS}),
    ],
)  # fmt: skip
def test_state(counts: list[Sunk], repeats: bool, expected: set[str]) -> None:
    assert wrong(audit_counts(counts, STORED, repeats=repeats)) == expected


def test_what_the_pipeline_tells_is_what_the_audit_wants() -> None:
    """On Beam's own runner, which waits for no timer of the clock."""
    records = [record_of(f"w-{offset // 3}".encode())._replace(queue_offset=offset) for offset in range(60)]
    stored = [Stored(place_of(each), each.body.decode(), 1_000 * each.queue_offset) for each in records]
    found: dict[str, list[Sunk]] = {"panes": [], "counts": []}
    _TOLD.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        stamped = beam.Map(lambda each: TimestampedValue(each, each.queue_offset)).with_output_types(Record)
        created = pipeline | beam.Create(records) | stamped
        for name, those in zip(found, told(created), strict=True):
            _ = those | name >> beam.Map(_note, name)
    for name, each in _TOLD:
        found[name].append(Sunk(SINK, each.id, each.body.encode()))
    assert not (windows := audit_panes(found["panes"], stored, repeats=True)), str(windows)
    assert not (state := audit_counts(found["counts"], stored, repeats=True)), str(state)


_TOLD: list[tuple[str, Told]] = []


def _note(each: Told, name: str) -> None:
    _TOLD.append((name, each))


@pytest.mark.parametrize("audit", [audit_copied, lambda those, stored: audit_counts(those, stored, repeats=True)])
def test_nothing_of_nothing_is_good(audit: Callable[[list[Sunk], list[Stored]], Audit]) -> None:
    assert not audit([], [])
