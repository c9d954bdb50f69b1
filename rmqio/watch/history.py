"""The past of what is watched: turns the answers of one poll into a frame. Pure: the caller says what time it is."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rmqio.command_line.contents import QueueState
from rmqio.command_line.remarks import remarks
from rmqio.model import MessageQueue
from rmqio.watch.figures import WINDOW_S, Offsets, total
from rmqio.watch.frames import BrokerView, DeadLettersView, Frame, PipelineView, QueueView, Target, Totals

KEPT: Final = 900
"""The polls that plots go back, a quarter of an hour at one a second."""
_CURVE: Final = 120
"""The polls that a queue's curve goes back."""


class _Queue:
    """The past of one queue."""

    def __init__(self, state: QueueState, window_s: float) -> None:
        self.state = state
        self.ends, self.commits = Offsets(window_s), Offsets(window_s)
        self.curve: deque[float | None] = deque(maxlen=_CURVE)
        self.is_away = False
        self.unread_ms: int | None = None


class _Broker:
    """The past of one broker."""

    def __init__(self, is_up: bool, now_ms: int) -> None:
        self.is_up, self.since_ms = is_up, now_ms
        self.answered_ms: int | None = None
        self.error: str | None = None


class History:
    """The record of what was seen so far. Belongs to the thread that polls; frames are values.

    every_s: the time between two polls.
    """

    def __init__(self, target: Target, every_s: float) -> None:
        self._target = target
        self._window_s = max(WINDOW_S, 2.5 * every_s)
        self._queues: dict[MessageQueue, _Queue] = {}
        self._brokers: dict[str, _Broker] = {}
        self._first_letters: dict[MessageQueue, int] = {}
        self._were_missing: set[str] = set()
        self.points: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def frame(
        self,
        now_ms: int,
        states: Sequence[QueueState],
        *,
        unread_ms: Mapping[MessageQueue, int | None] | None = None,
        pipeline: PipelineView | None = None,
        notes: Iterable[str] = (),
        missing: frozenset[str] = frozenset(),
    ) -> Frame:
        """Take in the answers about all queues, those of dead-letter topics included, and return what to show.

        unread_ms: when the oldest message that the group has not read was stored, where that is known.
        missing: dead-letter topics that do not exist.
        """
        self._were_missing |= missing
        for state in states:
            self._take(state, now_ms)
        self._take_brokers(states, now_ms)
        letters = frozenset(self._target.dead_letter_topics)
        past = [each for queue, each in sorted(self._queues.items()) if queue.topic not in letters]
        views = tuple(self._view(each, now_ms, (unread_ms or {}).get(each.state.queue)) for each in past)
        dead = tuple(self._letters(topic, now_ms, topic in missing) for topic in self._target.dead_letter_topics)
        sums = _totals(views, dead, now_ms)
        brokers = tuple(self._broker(name) for name in sorted(self._brokers))
        said = [*notes, *remarks([view.state for view in views if not view.is_away], self._target.group)]
        self.points.append(sums.point(now_ms, pipeline))
        return Frame(now_ms, self._target, views, brokers, dead, pipeline, sums, tuple(dict.fromkeys(said)))

    def _take(self, state: QueueState, now_ms: int) -> None:
        past = self._queues.get(state.queue)
        if past is None:
            past = self._queues[state.queue] = _Queue(state, self._window_s)
        past.is_away = state.error is not None
        if state.error is not None:
            past.curve.append(None)
            return
        past.state = state
        past.ends.add(now_ms / 1000, state.max_offset)
        if state.committed is not None:
            past.commits.add(now_ms / 1000, state.committed)
        has_group = self._target.group is not None
        past.curve.append(state.lag if has_group else past.ends.rate(now_ms / 1000))
        # A topic that is made for its first letter has none that was there before.
        is_new = state.queue.topic in self._were_missing
        self._first_letters.setdefault(state.queue, 0 if is_new else state.max_offset)

    def _take_brokers(self, states: Sequence[QueueState], now_ms: int) -> None:
        """A broker is away if none of its queues was answered."""
        for name in sorted({state.queue.broker for state in states}):
            errors = [state.error for state in states if state.queue.broker == name]
            is_up = None in errors
            past = self._brokers.get(name)
            if past is None or past.is_up != is_up:
                answered = past.answered_ms if past is not None else None
                past = self._brokers[name] = _Broker(is_up, now_ms)
                past.answered_ms = answered
            past.error = None if is_up else errors[0]
            if is_up:
                past.answered_ms = now_ms

    def _view(self, past: _Queue, now_ms: int, unread_ms: int | None) -> QueueView:
        now, state = now_ms / 1000, past.state
        if not past.is_away:
            past.unread_ms = unread_ms
        if past.unread_ms is not None and state.lag:  # of a broker that is away the last known message waits on
            state = dataclasses.replace(state, unread_ms=past.unread_ms)
        return QueueView(
            state, past.is_away or past.ends.last is None, past.ends.rate(now), past.commits.rate(now),
            _ms(past.commits.moved_at), tuple(past.curve),
        )  # fmt: skip

    def _broker(self, name: str) -> BrokerView:
        past = self._brokers[name]
        moved = [
            each.commits.moved_at
            for queue, each in self._queues.items()
            if queue.broker == name and each.commits.moved_at is not None
        ]
        committed = _ms(max(moved, default=None))
        return BrokerView(name, past.is_up, past.since_ms, past.answered_ms, committed, past.error)

    def _letters(self, topic: str, now_ms: int, is_missing: bool) -> DeadLettersView:
        found = [e for queue, e in self._queues.items() if queue.topic == topic and e.ends.last is not None]
        if is_missing or not found:
            return DeadLettersView(topic, None, None, None)
        new = sum(each.state.max_offset - self._first_letters[each.state.queue] for each in found)
        rate = total([each.ends.rate(now_ms / 1000) for each in found])
        return DeadLettersView(topic, sum(each.state.messages for each in found), max(0, new), rate)


def _totals(views: Sequence[QueueView], letters: Sequence[DeadLettersView], now_ms: int) -> Totals:
    lags = [view.state.lag for view in views if view.state.lag is not None]
    waits = [wait for view in views if (wait := view.state.lag_ms(now_ms)) is not None]
    if not any(waits) and any(lags):  # messages wait, and how long is not known yet: not 0
        waits = []
    held = [each.messages for each in letters if each.messages is not None]
    return Totals(
        sum(view.state.messages for view in views),
        sum(lags) if lags else None,
        max(waits, default=None),
        total([view.in_per_s for view in views]),
        total([view.out_per_s for view in views]),
        sum(held) if held else None,
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
