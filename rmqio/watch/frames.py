"""Frames: everything that is shown at one time, as values and as JSON, made of the answers of the polls so far."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.command_line.cluster import QueueState, remarks
from rmqio.model import MessageQueue

# Figures over time: rates of offsets, and how numbers, bars and curves look in a few columns. Pure.

WINDOW_S: Final = 10.0
"""Rates are means over this time: groups commit every few seconds, so a shorter time shows their steps."""
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


class Offsets:
    """The positions of one end or one group in a queue over the last seconds.

    An offset that goes back (a reset, a recreated topic, a replica that is behind) begins a new series: a rate across
    it would say nothing.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()
        self.moved_at: float | None = None
        """When the offset was first seen at its present value; None while it has not moved since the first look."""

    @property
    def last(self) -> int | None:
        return self._seen[-1][1] if self._seen else None

    def add(self, at: float, offset: int) -> None:
        """Add what was seen at a time in seconds."""
        last = self.last
        if last is not None and offset != last:
            self.moved_at = at
            if offset < last:
                self._seen.clear()
        self._seen.append((at, offset))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window_s:
            self._seen.popleft()

    def rate(self, now: float) -> float | None:
        """Return the offsets per second in the window; None before the second look, and when nobody answers."""
        if len(self._seen) < 2 or now - self._seen[-1][0] > self._window_s:
            return None
        (begin, low), (end, high) = self._seen[0], self._seen[-1]
        return (high - low) / (end - begin) if end > begin else None


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def spark(values: Sequence[float | None], columns: int, highest: float | None = None) -> str:
    """Return a curve of the last values, aligned to the right; a gap is a space.

    More values than columns are combined: each column shows the greatest of its values, so that no peak is lost.
    """
    if columns <= 0:
        return ""
    step = max(1, math.ceil(len(values) / columns))
    # Steps are counted from the newest value, so that a step holds the same values at the next look.
    ends = range(len(values), 0, -step)
    shown = [_greatest(values[max(0, end - step) : end]) for end in ends][::-1]
    top = highest if highest is not None else max((value for value in shown if value is not None), default=0)
    return "".join(" " if value is None else _LEVELS[_level(value, top)] for value in shown).rjust(columns)


def _greatest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _level(value: float, top: float) -> int:
    if top <= 0 or value <= 0:
        return 0
    return max(1, min(len(_LEVELS) - 1, round(value / top * (len(_LEVELS) - 1))))


def bar(value: float | None, top: float, columns: int) -> str:
    """Return a bar whose length is the share of `top`, in eighths of a column. More than nothing is never empty."""
    if value is None or value <= 0 or top <= 0:
        return ""
    eighths = max(1, min(columns * 8, round(value / top * columns * 8)))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def short_count(number: float | None) -> str:
    """Format a count in at most six characters: 99,999, then 100k, 1.25M; None as a dash."""
    if number is None:
        return "-"
    if number < 99_999.5:
        return f"{number:,.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if number < size * 999.5:
            share = number / size
            digits = 0 if share >= 99.95 else 1 if share >= 9.995 else 2
            return f"{share:.{digits}f}{unit}"
    return f"{number / 1e12:.3g}T"


def short_rate(per_s: float | None) -> str:
    """Format a rate; a slow one keeps a digit after the point, so that it does not look like none."""
    if per_s is None:
        return "-"
    return f"{per_s:.1f}" if 0 < per_s < 9.95 else short_count(per_s)


def short_age(ms: float | None) -> str:
    """Format a duration in at most five characters; None as a dash, one that a wrong clock makes negative as 0s."""
    if ms is None:
        return "-"
    seconds = max(ms, 0) / 1000
    if seconds < 9.95:
        return f"{seconds:.1f}s" if seconds >= 0.05 else "0s"
    for unit, length, most in (("s", 1, 99.5), ("m", 60, 99.5), ("h", 3_600, 99.5)):
        if seconds / length < most:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86_400:,.0f}d"


@dataclass(frozen=True, slots=True)
class Target:
    """The topics, the group and the exporter to watch."""

    topics: tuple[str, ...]
    group: str | None = None
    dead_letter_topics: tuple[str, ...] = ()
    metrics_url: str | None = None


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue. While its broker is away, the offsets are those of its last answer."""

    state: QueueState
    is_away: bool
    in_per_s: float | None
    out_per_s: float | None
    committed_ms: int | None
    """When the group's offset was seen to move; None: it has not while we look."""
    curve: tuple[float | None, ...]
    """The lag at each poll, oldest first; without a group, the messages that came per second."""

    def fields(self, now_ms: int) -> dict[str, Any]:
        """Return the fields of the JSON."""
        state = self.state
        return {
            "topic": state.queue.topic,
            "broker": state.queue.broker,
            "queue_id": state.queue.queue_id,
            "is_away": self.is_away,
            "min_offset": state.min_offset,
            "max_offset": state.max_offset,
            "committed_offset": state.committed,
            "lag_messages": state.lag,
            "lag_ms": state.lag_ms(now_ms),
            "lost_messages": state.lost,
            "in_per_s": self.in_per_s,
            "out_per_s": self.out_per_s,
            "committed_ms": self.committed_ms,
        }


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker, as its last answer or its silence shows it. Times are Unix milliseconds by our clock."""

    broker: str
    is_up: bool
    since_ms: int
    """Since when it has been so, as far as we have looked."""
    answered_ms: int | None
    committed_ms: int | None
    """When an offset of the group was last seen to move there."""
    error: str | None


@dataclass(frozen=True, slots=True)
class DeadLettersView:
    """A dead-letter topic."""

    topic: str
    messages: int | None
    """None: the topic does not exist, or no broker has answered yet."""
    new: int | None
    """Messages that came while we look."""
    per_s: float | None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The pipeline's own metrics, from its exporter."""

    url: str
    answered_ms: int | None
    error: str | None
    lag_s: float | None
    """The read furthest behind: how old its last message is, in seconds."""
    watermark_lag_s: float | None
    """How far the slowest watermark is behind the clock."""
    read_per_s: float | None
    sent_per_s: float | None
    errors: Mapping[str, float]
    """The counters of errors that are not zero, by name."""
    new_errors: float
    """How much they grew while we look."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the queues."""

    messages: int
    lag: int | None
    lag_ms: int | None
    """How long the oldest unread message has waited."""
    in_per_s: float | None
    out_per_s: float | None
    dead_letters: int | None

    def point(self, now_ms: int, pipeline: PipelineView | None) -> dict[str, Any]:
        """Return what the plots over time show."""
        found: dict[str, Any] = {
            "time_ms": now_ms,
            "lag_messages": self.lag,
            "lag_ms": self.lag_ms,
            "in_per_s": self.in_per_s,
            "out_per_s": self.out_per_s,
            "dead_letters": self.dead_letters,
        }
        if pipeline is not None:
            found |= {"pipeline_lag_s": pipeline.lag_s, "watermark_lag_s": pipeline.watermark_lag_s}
        return found


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that is shown at one time."""

    time_ms: int
    target: Target
    queues: tuple[QueueView, ...]
    brokers: tuple[BrokerView, ...]
    dead_letters: tuple[DeadLettersView, ...]
    pipeline: PipelineView | None
    total: Totals
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all brokers, and the exporter, have answered."""
        return all(broker.is_up for broker in self.brokers) and (self.pipeline is None or self.pipeline.error is None)

    def fields(self) -> dict[str, Any]:
        """Return the JSON of `--json` and of the page."""
        return {
            "time_ms": self.time_ms,
            "topics": list(self.target.topics),
            "group": self.target.group,
            "total": {
                "messages": self.total.messages,
                "lag_messages": self.total.lag,
                "lag_ms": self.total.lag_ms,
                "in_per_s": self.total.in_per_s,
                "out_per_s": self.total.out_per_s,
                "dead_letters": self.total.dead_letters,
            },
            "queues": [queue.fields(self.time_ms) for queue in self.queues],
            "brokers": [dataclasses.asdict(broker) for broker in self.brokers],
            "dead_letters": [dataclasses.asdict(letters) for letters in self.dead_letters],
            "pipeline": None if self.pipeline is None else dataclasses.asdict(self.pipeline),
            "notes": list(self.notes),
        }


# The past of what is watched: turns the answers of one poll into a frame. Pure: the caller says what time it is.

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
