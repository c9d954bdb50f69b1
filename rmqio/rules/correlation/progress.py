"""The memory that a correlation has of one group: little, whatever comes. Pure; events come in order of time.

After a correlation is found, the group begins anew: the next one has events of its own.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from rmqio.rules.correlation.rule import CorrelationKind, CorrelationRule

_AT_THE_END: Final = frozenset({"lt", "lte", "eq", "neq"})
"""Operators that can be judged only when the span is over: it begins with the first event."""


class Found(NamedTuple):
    """A correlation: the times of its first and last event, in microseconds, and the number that was compared."""

    first_us: int
    last_us: int
    number: int
    version: str = ""
    """The version of the rules that the last event matched."""


class Progress:
    """The state of one group. `kept` is a text of `kept()`, or empty."""

    def __init__(self, rule: CorrelationRule, kept: str = "") -> None:
        self._rule = rule
        self._span_us = rule.timespan_ms * 1000
        self._needed = rule.count + (rule.operator == "gt")
        self._times: dict[str, int] = {}
        """Times by what is counted: a number of an event, a value, a rule, or a place in the order."""
        self._first_us = self._last_us = self._number = 0
        self._version = ""
        if kept:
            self._times, self._first_us, self._last_us, self._number, self._version = json.loads(kept)

    def kept(self) -> str:
        """Returns the state as text; empty: there is none."""
        if not self._times:
            return ""
        return json.dumps([self._times, self._first_us, self._last_us, self._number, self._version])

    def due_us(self) -> int | None:
        """Returns when `pass_to` is to be called at the latest; None: there is no state."""
        if not self._times:
            return None
        return (self._first_us if self._ends_late else self._last_us) + self._span_us + 1

    @property
    def _ends_late(self) -> bool:
        return self._rule.operator in _AT_THE_END and self._rule.kind in (
            CorrelationKind.EVENT_COUNT,
            CorrelationKind.VALUE_COUNT,
        )

    def pass_to(self, time_us: int) -> Found | None:
        """Forgets what is too old at a time: no event before it comes any more. Returns what a span's end shows."""
        due = self.due_us()
        if due is None or time_us < due:
            return None
        found = Found(self._first_us, self._last_us, self._number, self._version)
        is_found = self._ends_late and self._compares(self._number)
        self._clear()
        return found if is_found else None

    def take(self, time_us: int, rule_id: str, value: Any = None, version: str = "") -> list[Found]:
        """Takes an event, not earlier than the one before. Returns what it completes."""
        found = []
        if (ended := self.pass_to(time_us)) is not None:
            found.append(ended)
        if not self._times:
            self._first_us = time_us
        self._last_us, self._version = time_us, version
        if self._ends_late:
            self._count(value)
        elif (completed := self._complete(time_us, rule_id, value)) is not None:
            found.append(completed._replace(version=version))
        return found

    def _count(self, value: Any) -> None:
        """Counts an event of a span whose end decides: no more values than the comparison can tell apart."""
        if self._rule.kind is CorrelationKind.EVENT_COUNT:
            self._times["n"] = self._last_us
            self._number += 1
        elif len(self._times) <= self._rule.count:
            self._times.setdefault(_key(value), self._last_us)
            self._number = len(self._times)

    def _complete(self, time_us: int, rule_id: str, value: Any) -> Found | None:
        if self._rule.kind is CorrelationKind.TEMPORAL_ORDERED:
            return self._ordered(time_us, rule_id)
        times = self._times
        if self._rule.kind is CorrelationKind.EVENT_COUNT:
            self._number += 1
            key, needed = str(self._number), self._needed
        elif self._rule.kind is CorrelationKind.VALUE_COUNT:
            key, needed = _key(value), self._needed
        else:
            key, needed = rule_id, len(set(self._rule.rules))
        times.pop(key, None)
        times[key] = time_us
        while (oldest := next(iter(times))) != key and times[oldest] < time_us - self._span_us:
            del times[oldest]
        if len(times) < needed:
            return None
        found = Found(next(iter(times.values())), time_us, len(times))
        self._clear()
        return found

    def _ordered(self, time_us: int, rule_id: str) -> Found | None:
        """For each place in the order, `_times` has the latest start of the rules up to it."""
        rules, times = self._rule.rules, self._times
        for place in reversed(range(len(rules))):
            if rules[place] != rule_id:
                continue
            start = time_us if place == 0 else times.get(str(place - 1))
            if start is not None and start >= time_us - self._span_us:
                times[str(place)] = start
        start = times.get(str(len(rules) - 1))
        if start is None:
            return None
        self._clear()
        return Found(start, time_us, len(rules))

    def _compares(self, number: int) -> bool:
        count = self._rule.count
        return {"lt": number < count, "lte": number <= count, "eq": number == count, "neq": number != count}[
            self._rule.operator
        ]

    def _clear(self) -> None:
        self._times = {}
        self._first_us = self._last_us = self._number = 0
        self._version = ""


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
