"""The ledger that judges the read on a real broker: each fault must be seen, and only that one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqio.model import MessageQueue
from tests.helpers.ledgers.ledger import Entry, Findings, check, gaps

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
SENT = {Q0: {n: f"0-{n}" for n in range(5)}, Q1: {n: f"1-{n}" for n in range(7, 10)}}
ALL = [Entry(queue, offset, message) for queue, messages in SENT.items() for offset, message in messages.items()]


def test_everything_once_in_order_is_clean() -> None:
    assert check(ALL, SENT) == Findings()
    assert not check(ALL, SENT)
    assert str(check(ALL, SENT)) == "clean"


def test_queues_may_be_mixed() -> None:
    assert not check([ALL[0], ALL[5], ALL[1], ALL[6], *ALL[2:5], ALL[7]], SENT)


def without(entries: list[Entry], *indices: int) -> list[Entry]:
    return [entry for index, entry in enumerate(entries) if index not in indices]


CASES: list[tuple[str, Callable[[], list[Entry]], Findings]] = [
    ("last one lost", lambda: without(ALL, 4), Findings(lost=(ALL[4],))),
    ("first one lost", lambda: without(ALL, 5), Findings(lost=(ALL[5],))),
    (
        "two in the middle lost",
        lambda: without(ALL, 1, 2),
        Findings(lost=(ALL[1], ALL[2]), skipped=((Q0, range(1, 3)),)),
    ),
    ("a whole queue lost", lambda: ALL[:5], Findings(lost=tuple(ALL[5:]))),
    ("read again at once", lambda: [*ALL[:2], ALL[1], *ALL[2:]], Findings(duplicated=(ALL[1],))),
    ("read again later, twice", lambda: [*ALL, ALL[0], ALL[0]], Findings(duplicated=(ALL[0], ALL[0]))),
    ("exchanged", lambda: [ALL[1], ALL[0], *ALL[2:]], Findings(reordered=(ALL[0],))),
    ("late", lambda: [*ALL[1:], ALL[0]], Findings(reordered=(ALL[0],))),
    ("never sent", lambda: [*ALL, Entry(Q0, 5, "0-5")], Findings(strange=(Entry(Q0, 5, "0-5"),))),
    (
        "another message in its place",
        lambda: [*ALL[:4], Entry(Q0, 4, "1-4"), *ALL[5:]],
        Findings(strange=(Entry(Q0, 4, "1-4"),)),
    ),
    (
        "behind a hole that nobody sent",
        lambda: [*ALL, Entry(Q0, 9, "x")],
        Findings(strange=(Entry(Q0, 9, "x"),), skipped=((Q0, range(5, 9)),)),
    ),
    ("another queue", lambda: [*ALL, Entry(Q1._replace(queue_id=2), 0, "x")], Findings(
        strange=(Entry(Q1._replace(queue_id=2), 0, "x"),))),
]  # fmt: skip


@pytest.mark.parametrize(("read", "findings"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_fault_is_found_and_no_other(read: Callable[[], list[Entry]], findings: Findings) -> None:
    found = check(read(), SENT)
    assert found == findings
    assert found


def test_a_finding_says_how_many_and_the_first() -> None:
    assert str(check(ALL[2:5], SENT)).startswith(f"5 lost, first {ALL[0]}")


def test_gaps() -> None:
    assert gaps([]) == gaps([3]) == gaps([5, 4, 4, 3]) == []
    assert gaps([9, 1, 2, 5]) == [range(3, 5), range(6, 9)]
