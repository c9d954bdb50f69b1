"""From the answers of polls to frames: lag, rates, brokers that go away and come back, dead letters."""

from __future__ import annotations

import json

from rmqio.command_line.cluster import QueueState
from rmqio.model import MessageQueue
from rmqio.watch.frames import KEPT, Frame, History, Target

A0, A1, B0 = (MessageQueue("orders", broker, number) for broker, number in (("a", 0), ("a", 1), ("b", 0)))
DEAD = MessageQueue("%DLQ%billing", "a", 0)
TARGET = Target(("orders",), "billing", ("%DLQ%billing",))


def state(queue: MessageQueue, end: int, committed: int | None = None, low: int = 0) -> QueueState:
    return QueueState(queue, low, end, committed=committed)


def silent(queue: MessageQueue) -> QueueState:
    return QueueState(queue, 0, 0, error="broker does not answer")


def after(*polls: list[QueueState], every_s: int = 1) -> tuple[History, Frame]:
    history = History(TARGET, every_s)
    frames = [history.frame(1_000_000 + at * every_s * 1000, states) for at, states in enumerate(polls)]
    return history, frames[-1]


def test_lag_and_rates_of_queues_and_their_sums() -> None:
    _, frame = after(
        [state(A0, 100, 40), state(A1, 10, 10), state(B0, 0)],
        [state(A0, 130, 90), state(A1, 20, 10), state(B0, 0)],
    )
    assert [(q.state.lag, q.in_per_s, q.out_per_s, q.committed_ms) for q in frame.queues] == [
        (40, 30, 50, 1_001_000),
        (10, 10, 0, None),
        (None, 0, None, None),
    ]
    assert (frame.total.lag, frame.total.in_per_s, frame.total.out_per_s, frame.total.messages) == (50, 40, 50, 150)
    assert list(frame.queues[0].curve) == [60, 40]
    assert any("has no offset in 1 queue" in note for note in frame.notes)


def test_without_a_group_a_queue_has_a_curve_of_what_comes() -> None:
    history = History(Target(("orders",)), 1)
    for at, end in enumerate((0, 10, 30)):
        frame = history.frame(1_000_000 + at * 1_000, [state(A0, end)])
    assert list(frame.queues[0].curve) == [None, 10, 15]
    assert frame.total.lag is None


def test_what_retention_deleted_is_no_lag_but_a_note() -> None:
    _, frame = after([state(A0, 100, 20, low=50)])
    assert frame.queues[0].state.lag == 50
    assert any("30 messages from offset 20 on were deleted" in note for note in frame.notes)


def test_a_broker_that_goes_away_keeps_its_last_figures_and_says_since_when() -> None:
    up, down = [state(A0, 10, 5), state(B0, 100, 40)], [state(A0, 12, 12), silent(B0)]
    history, frame = after(up, up, down, down)
    a, b = frame.brokers
    assert (a.is_up, a.since_ms, a.answered_ms, a.error) == (True, 1_000_000, 1_003_000, None)
    assert (b.is_up, b.since_ms, b.answered_ms, b.error) == (
        False, 1_002_000, 1_001_000, "broker does not answer",
    )  # fmt: skip
    assert not frame.is_whole
    assert [queue.is_away for queue in frame.queues] == [False, True]
    assert frame.queues[1].state.lag == 60
    assert list(frame.queues[1].curve) == [60, 60, None, None], "a gap, not a line"
    assert frame.total.lag == 60
    back = history.frame(1_004_000, up)
    assert [(broker.is_up, broker.since_ms) for broker in back.brokers] == [(True, 1_000_000), (True, 1_004_000)]
    assert back.is_whole


def test_a_broker_with_one_queue_that_is_refused_is_up() -> None:
    _, frame = after([state(A0, 1, 1), silent(A1)])
    assert [broker.is_up for broker in frame.brokers] == [True]
    assert [queue.is_away for queue in frame.queues] == [False, True]


def test_a_broker_that_never_answered_is_away_from_the_first() -> None:
    _, frame = after([silent(A0), state(B0, 1)])
    assert [(broker.is_up, broker.answered_ms) for broker in frame.brokers] == [(False, None), (True, 1_000_000)]
    assert frame.queues[0].is_away


def test_the_oldest_unread_message_waits_on_while_its_broker_is_away() -> None:
    history = History(TARGET, 1)
    frame = history.frame(999_000, [state(A0, 10, 5), state(A1, 10, 10)])
    assert frame.total.lag_ms is None, "it is not known yet"
    frame = history.frame(1_000_000, [state(A0, 10, 5)], unread_ms={A0: 997_000})
    assert frame.total.lag_ms == 3_000
    frame = history.frame(1_010_000, [silent(A0)])
    assert frame.total.lag_ms == 13_000
    frame = history.frame(1_011_000, [state(A0, 10, 10)])
    assert frame.total.lag_ms == 0, "the group has read everything"


def test_dead_letters_are_counted_and_the_new_ones() -> None:
    one = [state(A0, 1, 1)]
    history, frame = after([*one, state(DEAD, 5)], [*one, state(DEAD, 8, low=2)])
    (letters,) = frame.dead_letters
    assert (letters.messages, letters.new, letters.per_s) == (6, 3, 3)
    assert frame.total.dead_letters == 6
    assert [queue.state.queue for queue in frame.queues] == [A0], "they are no lag"
    gone = history.frame(1_002_000, one, missing=frozenset({"%DLQ%billing"}))
    assert gone.dead_letters[0].messages is None


def test_plots_go_back_so_far_and_a_frame_is_json() -> None:
    history, frame = after(*[[state(A0, end, end)] for end in range(KEPT + 5)])
    assert len(history.points) == KEPT
    assert history.points[-1]["in_per_s"] == 1
    fields = json.loads(json.dumps(frame.fields()))
    assert fields["total"]["lag_messages"] == 0
    assert fields["queues"][0]["committed_offset"] == KEPT + 4
    assert fields["brokers"][0]["is_up"] is True


def test_the_first_letters_of_a_group_are_new() -> None:
    """The broker makes the topic when it has the first one, so at the first look it is missing."""
    history = History(TARGET, 1)
    history.frame(1_000_000, [state(A0, 1)], missing=frozenset(TARGET.dead_letter_topics))
    frame = history.frame(1_010_000, [state(A0, 1), state(DEAD, 8)])
    assert [(each.messages, each.new) for each in frame.dead_letters] == [(8, 8)]
