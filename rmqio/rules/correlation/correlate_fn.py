"""The DoFns of `Correlate`: one takes matches to their groups, one keeps the state of a group."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from rmqio.errors import RmqioError, SerdeError
from rmqio.rules.correlation.events import event_of, single
from rmqio.rules.correlation.outputs import Correlated
from rmqio.rules.correlation.progress import Found, Progress
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.formats import RuleText
from rmqio.rules.formats.json_rules import dumps, parse
from rmqio.rules.ruleset import RuleSet
from rmqio.rules.transform.read_failures import failure_of
from rmqio.transforms.parts import WAITING_LEVELS, Waiting, second_after

MATCHES_TAG: Final = "matches"
ERRORS_TAG: Final = "errors"
NAMESPACE: Final = "rmqio.rules"
_LOGGER: Final = logging.getLogger(__name__)


class ToGroupsFn(beam.DoFn):
    """Emits (group, event) for each correlation that takes a match, and to `MATCHES_TAG` what stands by itself.

    To `ERRORS_TAG` go messages whose bodies are not events.
    """

    def __init__(self, rules: RuleSet, refresh_s: float, on_bad_rule: str = "keep_previous") -> None:
        self._rules = rules
        self._skips = on_bad_rule == "skip"
        self._refresh_s = refresh_s
        self._signature = self._reported = ""
        self._next_look = 0.0
        self._of_rule: dict[str, list[tuple[CorrelationRule, str]]] = {}
        self._held_back: set[str] = set()

    def setup(self) -> None:
        self._signature = self._rules.signature()
        self._take(self._correlations())
        self._rules = self._rules.after_start()

    def start_bundle(self) -> None:
        """Looks now and then whether the rules have changed; a set that is not valid leaves the old one."""
        if time.monotonic() < self._next_look:
            return
        try:
            signature = self._rules.signature()
            if signature != self._signature:
                self._take(self._correlations())
                self._signature = signature
        except RmqioError as error:
            if str(error) != self._reported:
                self._reported = str(error)
                _LOGGER.warning("the previous correlations stay in use: %s", error)
        self._next_look = time.monotonic() + self._refresh_s

    def _correlations(self) -> tuple[CorrelationRule, ...]:
        return self._rules.usable().correlations if self._skips else self._rules.correlations()

    def _take(self, correlations: tuple[CorrelationRule, ...]) -> None:
        self._next_look = time.monotonic() + self._refresh_s
        self._of_rule, self._held_back = {}, set()
        for each in correlations:
            text = dumps([each])
            for rule_id in dict.fromkeys(each.rules):
                self._of_rule.setdefault(rule_id, []).append((each, text))
            if not each.generate:
                self._held_back.update(each.rules)

    def process(self, element: Any) -> Iterator[Any]:
        if element.rule_id not in self._held_back:
            yield beam.pvalue.TaggedOutput(MATCHES_TAG, element)
        taken = self._of_rule.get(element.rule_id)
        if not taken:
            return
        try:
            event = event_of(element.message)
        except SerdeError as error:
            Metrics.counter(NAMESPACE, "correlation_broken").inc()
            yield beam.pvalue.TaggedOutput(ERRORS_TAG, failure_of(element.message, error))
            return
        for rule, text in taken:
            group = [single(event, rule.fields_of(name, element.rule_id)) for name in rule.group_by]
            value = single(event, rule.fields_of(rule.field, element.rule_id)) if rule.field else None
            if None in group or (rule.field and value is None):
                Metrics.counter(NAMESPACE, "correlation_without_group").inc()
                continue
            key = json.dumps([text, group], sort_keys=True, default=str)
            event_of_group = [element.rule_id, value, element.ruleset_version]
            yield key.encode(), json.dumps(event_of_group, sort_keys=True, default=str).encode()


class CorrelateFn(beam.DoFn):
    """Takes the events of a group in order of event time, and emits `Correlated`.

    The key has the rule, so that a rule that changes begins anew, and no worker needs to know the set. State ends a
    timespan after the last event.

    The names of the states have a number, so that what a version with other contents has stored is not taken for these.
    """

    BAGS = tuple(BagStateSpec(f"waiting{level}.2", BytesCoder()) for level in range(WAITING_LEVELS))
    WAITING_0, WAITING_1, WAITING_2, WAITING_3, WAITING_4 = BAGS
    USED = ReadModifyWriteStateSpec("used.2", VarIntCoder())
    KEPT = ReadModifyWriteStateSpec("kept.2", BytesCoder())
    KEY = ReadModifyWriteStateSpec("key.2", BytesCoder())
    DONE = ReadModifyWriteStateSpec("done.2", VarIntCoder())
    NEXT = ReadModifyWriteStateSpec("next.2", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[bytes, bytes],
        timestamp: Any = beam.DoFn.TimestampParam,
        bag0: Any = beam.DoFn.StateParam(WAITING_0),
        bag1: Any = beam.DoFn.StateParam(WAITING_1),
        bag2: Any = beam.DoFn.StateParam(WAITING_2),
        bag3: Any = beam.DoFn.StateParam(WAITING_3),
        bag4: Any = beam.DoFn.StateParam(WAITING_4),
        used: Any = beam.DoFn.StateParam(USED),
        key: Any = beam.DoFn.StateParam(KEY),
        done: Any = beam.DoFn.StateParam(DONE),
        following: Any = beam.DoFn.StateParam(NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        group, event = element
        time_us = timestamp.micros
        done_us = done.read()
        if done_us is None:
            key.write(group)
        elif time_us < done_us:
            Metrics.counter(NAMESPACE, "correlation_late").inc()
            return
        Waiting((bag0, bag1, bag2, bag3, bag4), used, done_us).add(time_us, event)
        next_us = second_after(time_us)
        waits_for = following.read()
        if waits_for is None or next_us < waits_for:
            following.write(next_us)
            due.set(Timestamp(micros=next_us))

    @on_timer(DUE)
    def advance(
        self,
        bag0: Any = beam.DoFn.StateParam(WAITING_0),
        bag1: Any = beam.DoFn.StateParam(WAITING_1),
        bag2: Any = beam.DoFn.StateParam(WAITING_2),
        bag3: Any = beam.DoFn.StateParam(WAITING_3),
        bag4: Any = beam.DoFn.StateParam(WAITING_4),
        used: Any = beam.DoFn.StateParam(USED),
        kept: Any = beam.DoFn.StateParam(KEPT),
        key: Any = beam.DoFn.StateParam(KEY),
        done: Any = beam.DoFn.StateParam(DONE),
        following: Any = beam.DoFn.StateParam(NEXT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[Correlated]:
        """The watermark has passed a second: its events, and those before, count."""
        until_us = following.read()
        if until_us is None:  # a timer that was set anew
            return
        rule, group = _rule_of(bytes(key.read()))
        waiting = Waiting((bag0, bag1, bag2, bag3, bag4), used, done.read())
        events: list[tuple[int, int, str, str, Any]] = []
        taken, earliest_us = waiting.take(until_us)
        for time_us, packed in taken:
            rule_id, value, version = json.loads(packed)
            events.append((time_us, rule.rules.index(rule_id), json.dumps(value), version, value))
        progress = Progress(rule, (kept.read() or b"").decode())
        found: list[Found] = []
        for time_us, place, _, version, value in sorted(events, key=lambda each: each[:4]):
            found += progress.take(time_us, rule.rules[place], value, version)
        if (ended := progress.pass_to(until_us)) is not None:
            found.append(ended)
        times = [] if earliest_us is None else [second_after(earliest_us)]
        if (due_us := progress.due_us()) is not None:
            times.append(due_us)
        if times:
            kept.write(progress.kept().encode())
            done.write(until_us)
            following.write(min(times))
            due.set(Timestamp(micros=min(times)))
        else:
            for state in (kept, key, done, following):
                state.clear()
        for each_found in found:
            yield Correlated(
                rule.id, rule.title, rule.level, rule.tags, tuple(zip(rule.group_by, group, strict=True)),
                each_found.first_us // 1000, each_found.last_us // 1000, each_found.number, rule.rules,
                each_found.version,
            )  # fmt: skip


@functools.lru_cache(maxsize=10_000)
def _rule_of(key: bytes) -> tuple[CorrelationRule, list[Any]]:
    text, group = json.loads(key)
    (rule,) = parse([RuleText("correlation", text)]).correlations
    return rule, group
