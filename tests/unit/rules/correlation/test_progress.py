"""The state of a correlation, beside a search through all events."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.rules.correlation import Found, Progress
from rmqio.rules.ir import OPERATORS, CorrelationKind, CorrelationRule

Event = tuple[int, str, Any]
_SPAN_MS = 5
_EVENTS = st.lists(
    st.tuples(st.integers(0, 30_000), st.sampled_from(["r", "s", "t"]), st.sampled_from([1, "1", [1], "x"])),
    max_size=20,
).map(lambda events: sorted(events, key=lambda each: each[0]))


def _expected(rule: CorrelationRule, events: list[Event]) -> list[tuple[int, int]]:
    """First and last event of each correlation: every part of the events since the last one is looked at."""
    found, begin = [], 0
    for end in range(len(events)):
        since = [each for each in events[begin : end + 1] if each[0] >= events[end][0] - _SPAN_MS * 1000]
        start = _start(rule, since)
        if start is not None:
            found.append((start, events[end][0]))
            begin = end + 1
    return found


def _start(rule: CorrelationRule, events: list[Event]) -> int | None:
    """The latest event from which on the events meet the rule."""
    for first in reversed(range(len(events))):
        some = events[first:]
        if rule.kind is CorrelationKind.EVENT_COUNT:
            number, needed = len(some), rule.count
        elif rule.kind is CorrelationKind.VALUE_COUNT:
            number, needed = len({repr(value) for _, _, value in some}), rule.count
        elif rule.kind is CorrelationKind.TEMPORAL:
            number, needed = len({name for _, name, _ in some}), len(rule.rules)
        else:
            chains = itertools.combinations([name for _, name, _ in some], len(rule.rules))
            number, needed = int(rule.rules in chains), 1
        if number >= needed + (rule.operator == "gt"):
            return some[0][0]
    return None


@given(
    st.sampled_from(list(CorrelationKind)), st.integers(1, 4), st.sampled_from(["gte", "gt"]),
    st.permutations(["r", "s", "t"]), _EVENTS, st.booleans(),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_what_is_found_is_what_a_search_finds(
    kind: CorrelationKind, count: int, operator: str, rules: list[str], events: list[Event], is_kept: bool
) -> None:
    operator = operator if kind in (CorrelationKind.EVENT_COUNT, CorrelationKind.VALUE_COUNT) else "gte"
    rule = CorrelationRule("c", kind, tuple(rules), _SPAN_MS, operator=operator, count=count, field="f")
    progress, found = Progress(rule), []
    for time_us, rule_id, value in events:
        if is_kept:
            progress = Progress(rule, progress.kept())
        found += progress.take(time_us, rule_id, value)
        assert len(progress.kept()) < 300
    assert [(each.first_us, each.last_us) for each in found] == _expected(rule, events)


@pytest.mark.parametrize(
    ("kind", "rules", "events", "found"),
    [
        ("event_count", "r", "r0 r5", [(0, 5)]),
        ("event_count", "r", "r0 r6", []),
        ("value_count", "rs", "r0 s5", [(0, 5)]),
        ("value_count", "rs", "r0 s6", []),
        ("temporal", "rs", "s0 r5", [(0, 5)]),
        ("temporal", "rs", "s0 r6", []),
        ("temporal", "rsr", "s0 r1", [(0, 1)]),
        ("temporal_ordered", "rs", "r0 s5", [(0, 5)]),
        ("temporal_ordered", "rs", "r0 s6", []),
        ("temporal_ordered", "rst", "r0 s4 t5", [(0, 5)]),
        ("temporal_ordered", "rst", "r0 s4 t6", []),
        ("temporal_ordered", "rrs", "r0 s1", []),
        ("temporal_ordered", "rrs", "r0 r1 s2", [(0, 2)]),
    ],
)
def test_a_span_has_both_of_its_ends_and_an_event_counts_once(
    kind: str, rules: str, events: str, found: list[tuple[int, int]]
) -> None:
    rule = CorrelationRule("c", CorrelationKind(kind), tuple(rules), _SPAN_MS, count=2, field="f")
    progress = Progress(rule)
    taken = [each for event in events.split() for each in progress.take(int(event[1:]) * 1000, event[0], event[0])]
    assert [(each.first_us // 1000, each.last_us // 1000) for each in taken] == found


@given(
    st.sampled_from([CorrelationKind.EVENT_COUNT, CorrelationKind.VALUE_COUNT]), st.integers(0, 4),
    st.sampled_from(["lt", "lte", "eq", "neq"]), _EVENTS,
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_small_number_is_judged_at_the_end_of_the_span(
    kind: CorrelationKind, count: int, operator: str, events: list[Event]
) -> None:
    rule = CorrelationRule("c", kind, ("r", "s", "t"), _SPAN_MS, operator=operator, count=count, field="f")
    expected = []
    rest = events
    while rest:
        inside = [each for each in rest if each[0] <= rest[0][0] + _SPAN_MS * 1000]
        rest = rest[len(inside) :]
        number = len(inside if kind is CorrelationKind.EVENT_COUNT else {repr(value) for _, _, value in inside})
        if {"lt": number < count, "lte": number <= count, "eq": number == count, "neq": number != count}[operator]:
            expected.append((inside[0][0], inside[-1][0]))
    progress, found = Progress(rule), []
    for event in events:
        progress = Progress(rule, progress.kept())
        found += progress.take(*event)
        assert len(progress.kept()) < 300
    due = progress.due_us()
    if due is not None:
        assert progress.pass_to(due - 1) is None
        found += [each for each in [progress.pass_to(due)] if each is not None]
    assert not progress.kept()
    assert [(each.first_us, each.last_us) for each in found] == expected


def test_the_operators_are_sigmas() -> None:
    assert set(OPERATORS) == {"gte", "gt", "lte", "lt", "eq", "neq"}


def test_state_ends_a_timespan_after_the_last_event() -> None:
    rule = CorrelationRule("c", CorrelationKind.EVENT_COUNT, ("r",), 10, count=3)
    progress = Progress(rule)
    assert progress.take(1_000, "r") == []
    assert progress.due_us() == 11_001
    assert progress.pass_to(11_001) is None
    assert progress.kept() == ""
    progress.take(20_000, "r")
    progress.take(21_000, "r")
    assert progress.take(30_000, "r") == [Found(20_000, 30_000, 3)]


@pytest.mark.parametrize("kind", list(CorrelationKind))
def test_state_stays_small_whatever_comes(kind: CorrelationKind) -> None:
    rule = CorrelationRule("c", kind, ("r", "never"), 10**9, operator="lt", count=5, field="f")
    progress = Progress(rule)
    for number in range(10_000):
        progress.take(number, "r", number)
    assert len(progress.kept()) < 300
