"""The auditor of chaos runs finds what is wrong, and only that."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rmqio.model import MessageQueue
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.chaos.audit import Audit, audit_copies, audit_read, audit_stored, audit_topics
from tests.chaos.faults import Fault, blows
from tests.chaos.pipelines import copy_of, entry_of, line_of
from tests.chaos.writers import SENT_ID, Place
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Entry

A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
C = MessageQueue("copies", "a", 0)

Stored = dict[MessageQueue, dict[int, object]]


def stored() -> Stored:
    """Four messages, of which one is there twice because its producer got no answer to the first try."""
    return {A: {0: "w-0", 1: "w-1", 2: "w-1", 3: "w-2"}, B: {0: "x-0"}}


def stored_audit(found: Stored, unsure: set[str] | None = None) -> Audit:
    acked = {"w-0": Place(A, 0), "w-1": Place(A, 2), "w-2": Place(A, 3), "x-0": Place(B, 0)}
    unsure = {"w-1"} if unsure is None else unsure
    return audit_stored(found, acked, tried=[*acked, "x-1"], unsure=unsure, ordered=["w"])


def wrong(audit: Audit) -> set[str]:
    return {name for name, of in audit.faults.items() if of}


def test_what_is_as_it_should_be_is_counted() -> None:
    audit = stored_audit(stored())
    assert not audit
    assert audit.counts == {
        "acknowledged": 4,
        "stored": 5,
        "twice or more": 1,
        "not acknowledged and stored": 0,
    }
    assert "nothing wrong" in str(audit)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda found: found[B].clear(), {"lost"}),
        (lambda found: found.pop(B), {"lost"}),
        (lambda found: found[B].update({0: "x-1", 1: "x-0"}), {"elsewhere"}),
        (lambda found: found[B].update({1: "x-9"}), {"never sent"}),
        (lambda found: found[B].update({1: "x-0"}), {"twice without a reason"}),
        (lambda found: found[B].update({1: "x-1"}), set()),  # stored, and its acknowledgement lost
        (lambda found: found[A].update({4: "w-1"}), set()),  # a late second try of it
        (lambda found: found[A].update({0: "w-1", 4: "w-0"}), {"elsewhere", "out of order"}),
    ],
)
def test_what_is_wrong_with_a_topic_is_found(change: Callable[[Stored], object], expected: set[str]) -> None:
    found = stored()
    change(found)
    assert wrong(stored_audit(found)) == expected


def test_a_second_copy_needs_a_reason() -> None:
    assert wrong(stored_audit(stored(), unsure=set())) == {"twice without a reason"}


def entries() -> list[Entry]:
    return [Entry(queue, offset, id_) for queue, messages in stored().items() for offset, id_ in messages.items()]


@pytest.mark.parametrize(
    ("lives", "again", "expected"),
    [
        ([entries()], 0, set()),
        ([entries()[:3], entries()[1:]], 2, set()),  # killed, and begun again where the group's offset was
        ([entries()[:3], entries()[4:]], 0, {"lost"}),
        ([[*entries(), entries()[1]]], 1, {"twice in one life"}),
        ([[entries()[1], entries()[0], *entries()[2:]]], 0, {"out of order"}),
        ([[*entries(), Entry(B, 7, "x-0")]], 0, {"never stored"}),
    ],
)
def test_what_is_wrong_with_an_endless_read_is_found(lives: list[list[Entry]], again: int, expected: set[str]) -> None:
    audit = audit_read(lives, stored())
    assert wrong(audit) == expected
    assert audit.counts["read again in a new life"] == again


@pytest.mark.parametrize(
    ("copies", "reads", "expected", "by_runs", "in_a_run"),
    [
        (entries(), entries(), set(), 0, 0),
        ([*entries()[:2], *entries()], [*entries()[:2], *entries()], set(), 2, 0),
        ([entries()[0], *entries()], entries(), set(), 0, 1),
        (entries()[1:], entries(), {"lost"}, 0, 0),
        ([entries()[1], entries()[0], *entries()[2:]], entries(), {"out of order"}, 0, 0),
        ([*entries(), Entry(B, 7, "x-0")], [*entries(), Entry(B, 7, "x-0")], {"never stored"}, 0, 0),
        (entries(), entries()[1:], {"never read"}, 0, 0),
    ],
)
def test_what_is_wrong_with_copies_is_found(
    copies: list[Entry], reads: list[Entry], expected: set[str], by_runs: int, in_a_run: int
) -> None:
    audit = audit_copies({C: dict(enumerate(copies))}, reads, stored(), failed_runs=0)
    assert wrong(audit) == expected
    assert audit.counts["copied again by a later run"] == by_runs
    assert audit.counts["stored twice by one run"] == in_a_run


def test_a_copy_of_a_later_run_may_stand_behind_what_came_after_it() -> None:
    """While a broker is away its keys go to another queue; the group's offset that it forgets brings them back."""
    other = MessageQueue("copies", "b", 0)
    first, second, third, fourth = entries()[:4]
    copies: Stored = {C: dict(enumerate([first, third, second, fourth])), other: {0: second}}
    for again in (True, False):
        reads = [first, second, third, *([second] if again else []), fourth]
        audit = audit_copies(copies, [*reads, *entries()[4:]], stored(), failed_runs=1)
        assert ("out of order" in wrong(audit)) is not again


def test_a_line_of_a_ledger_is_read_as_it_was_written() -> None:
    for entry in entries():
        assert entry_of(line_of(entry)) == entry


def test_the_same_seed_gives_the_same_blows() -> None:
    faults = [Fault(kind, target, lambda: None) for kind in ("kill", "pause") for target in ("a", "b")]
    faults.append(Fault("add", "c", lambda: None, is_lonely=True))

    def first_blows(seed: int) -> list[object]:
        return [blow for blow, _ in zip(blows(random.Random(seed), faults), range(40), strict=False)]

    assert first_blows(3) == first_blows(3) != first_blows(4)
    double = [blow.faults for blow in first_blows(3) if len(blow.faults) > 1]  # type: ignore[attr-defined]
    assert double
    assert all(one.target != other.target and "c" not in (one.target, other.target) for one, other in double)


def test_the_command_knows_copies_by_the_id_that_was_sent() -> None:
    """A stream gives its copies other unique ids: they are those of the places."""
    with InMemoryCluster() as cluster:
        for topic in ("source", "copies"):
            cluster.create_topic(topic, 1)
        client = InMemoryClientFactory(cluster.name).queue_client()
        for number in range(4):
            id_ = f"w-{number}"
            cluster.append("source", id_.encode(), properties={"UNIQ_KEY": id_, SENT_ID: id_})
        records = [*read_topic(client, "source")]
        for record in [records[0], records[0], records[1], records[3]]:
            copy = copy_of(record)
            cluster.append("copies", copy.body, properties={**copy.properties, "UNIQ_KEY": "x"})
        found = audit_topics(client, "source", "copies", f"property:{SENT_ID}")
        client.close()
    assert wrong(found) == {"lost"}
    assert len(found.faults["lost"]) == 1
    assert found.counts == {"sent": 4, "arrived": 3, "copies too many": 1}
