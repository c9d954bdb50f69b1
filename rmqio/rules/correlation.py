"""`Correlate`: several matches of one group within a span of event time make one more match."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder, VarIntCoder, registry
from apache_beam.metrics import Metrics
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.typehints.typehints import ListConstraint
from apache_beam.utils.timestamp import Timestamp

from rmqio.errors import LocalError, RmqioError, SerdeError, WireError
from rmqio.interfaces import ClientFactory
from rmqio.rules.formats import RuleText
from rmqio.rules.formats.json_rules import dumps, parse
from rmqio.rules.ir import CorrelationKind, CorrelationRule
from rmqio.rules.match.atoms import members
from rmqio.rules.match.columns import event_of as decode
from rmqio.rules.ruleset import RuleSet
from rmqio.rules.transform import MatchedMessage, failure_of
from rmqio.security import Security
from rmqio.transforms import ReadFailure, WriteDeadLetters
from rmqio.transforms.parts import WAITING_LEVELS, Waiting, second_after

# The memory that a correlation has of one group: little, whatever comes. Pure; events come in order of time.
#
# After a correlation is found, the group begins anew: the next one has events of its own.

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


# A correlation that was found, as an element.


class Correlated(NamedTuple):
    """Events of one group that met a correlation rule.

    Attributes:
      rule_id, title, level, tags: of the correlation rule.
      group: names and values of its `group_by`.
      first_ms, last_ms: event times of the first and the last event, in milliseconds since 1970.
      number: how many events, distinct values or rules there were.
      rules: the ids of the rules whose matches were correlated.
      ruleset_version: as in the `Match` of the last event: the hash of the rules that were in force.
    """

    rule_id: str
    title: str
    level: str
    tags: tuple[str, ...]
    group: tuple[tuple[str, Any], ...]
    first_ms: int
    last_ms: int
    number: int
    rules: tuple[str, ...]
    ruleset_version: str = ""


class CorrelatedCoder(Coder):
    """JSON, since values of events are JSON's."""

    def encode(self, value: Correlated) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    def decode(self, encoded: bytes) -> Correlated:
        try:
            rule_id, title, level, tags, group, first, last, count, rules, version = json.loads(encoded)
            pairs = tuple((name, each) for name, each in group)
        except (ValueError, TypeError) as error:
            raise WireError(f"this is not an encoded correlation: {error}") from error
        return Correlated(rule_id, title, level, tuple(tags), pairs, first, last, count, tuple(rules), version)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type[Correlated]:
        return Correlated


registry.register_coder(Correlated, CorrelatedCoder)


# The events of matches: what group and value a correlation takes of them.


def event_of(message: Any) -> Mapping[str, Any]:
    """Returns the event of a match's message: a body of JSON, a record, a dict, a Row or a named tuple.

    Raises `SerdeError` for a body that is not an event, and `LocalError` for an element that is none.
    """
    is_message = hasattr(message, "body") and hasattr(message, "properties")  # a Row can have a field of that name
    body = message.body if is_message else message
    if isinstance(body, (bytes, str)):
        found = decode(body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body)
    elif hasattr(message, "_asdict"):
        found = message._asdict()
    elif hasattr(message, "as_dict"):
        found = message.as_dict()
    else:
        found = message
    if not isinstance(found, Mapping):
        raise LocalError(f"Correlate takes matches with their messages, but this one has {type(found).__name__}")
    return found


def single(event: Mapping[str, Any], paths: Sequence[str]) -> Any:
    """Returns the value of the first field that has one, a list if it has several; None: none has, or it is null."""
    for path in paths:
        found = [_plain(each) for each in members(event, path) if each is not None]
        if found:
            return found[0] if len(found) == 1 else found
    return None


def _plain(value: Any) -> Any:
    """The value as one of JSON: of equal numbers, the same."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The DoFns of `Correlate`: one takes matches to their groups, one keeps the state of a group.

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


class CorrelateResult(NamedTuple):
    """The outputs of `Correlate`.

    Attributes:
      correlated: a `Correlated` for each correlation that was found.
      matches: the matches that are reported by themselves, too: those of rules that no correlation takes, or only such
        with `generate`.
      errors: a `ReadFailure` for each match whose message is not a JSON object; also those that go to dead letters.
    """

    correlated: Any
    matches: Any
    errors: Any


class Correlate(beam.PTransform):
    """Correlates matches by event time: elements are those of `MatchRules`, with their messages.

    The state of a group is a few times, and ends a timespan after its last event. It is in Beam's state: it needs a
    runner that has state and timers of event time. Matches that come after the watermark are late, and do not count.

    Args:
      rules: the set, whose correlations are taken, or the correlations themselves.
      refresh_s: how often to look whether the set has changed; a set that is not valid leaves the old one.
      on_bad_rule: if some of the set cannot be used: "keep_previous" correlations, or "skip" what is wrong, as
        `MatchRules` does.
      dead_letter_topic: a topic for messages that are not JSON objects.
      name_server, security, client_factory: for the dead-letter topic, as in `WriteToRocketMQ`.
    """

    def __init__(
        self,
        rules: RuleSet | Iterable[CorrelationRule],
        *,
        refresh_s: float = 30.0,
        on_bad_rule: Literal["keep_previous", "skip"] = "keep_previous",
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        if isinstance(refresh_s, bool) or not isinstance(refresh_s, (int, float)) or not refresh_s > 0:
            raise LocalError(f"refresh_s is {refresh_s!r}; it must be a number of seconds above 0")
        if on_bad_rule not in ("keep_previous", "skip"):
            raise LocalError(f"on_bad_rule is {on_bad_rule!r}; there are keep_previous, skip")
        self._on_bad_rule = on_bad_rule
        self._rules = rules if isinstance(rules, RuleSet) else RuleSet.of(rules)
        self._refresh_s = refresh_s
        self._letters: WriteDeadLetters | None = None
        if dead_letter_topic is not None:
            self._letters = WriteDeadLetters(
                dead_letter_topic, name_server=name_server, security=security, client_factory=client_factory
            )

    def expand(self, matches: Any) -> CorrelateResult:
        _require_matches(matches)
        routed = matches | "To groups" >> beam.ParDo(
            ToGroupsFn(self._rules, self._refresh_s, self._on_bad_rule)
        ).with_outputs(MATCHES_TAG, ERRORS_TAG, main="events")
        events = routed["events"] | "Events" >> beam.Map(_same).with_output_types(tuple[bytes, bytes])
        in_one_window = events | "One window" >> beam.WindowInto(beam.window.GlobalWindows())
        correlated = in_one_window | "Correlate" >> beam.ParDo(CorrelateFn()).with_output_types(Correlated)
        alone = routed[MATCHES_TAG] | "Matches" >> beam.Map(_same).with_output_types(matches.element_type or Any)
        errors = routed[ERRORS_TAG]
        errors.element_type = ReadFailure
        if self._letters is not None:
            _ = errors | "Dead letters" >> self._letters
        return CorrelateResult(correlated, alone, errors)


def _require_matches(matches: Any) -> None:
    """Raises `LocalError` for elements that have no rule, before the pipeline runs."""
    if isinstance(matches, tuple):
        raise LocalError("Correlate takes the hits of MatchRules, not both of its outputs: hits, errors = ...")
    kind = matches.element_type
    if isinstance(kind, ListConstraint) or (isinstance(kind, type) and issubclass(kind, list)):
        raise LocalError(
            f"Correlate takes single matches, and these are batches ({kind}): put beam.FlatMap(lambda batch: batch)"
            ".with_output_types(Match) before it"
        )
    if kind is MatchedMessage:
        raise LocalError('Correlate takes matches with their messages: leave out output="message" of MatchRules')


def _same(value: Any) -> Any:
    return value
