"""`Correlate`, the Beam transform: matches of rules become matches of correlation rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import apache_beam as beam
from apache_beam.typehints.typehints import ListConstraint

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.rules.correlation.correlate_fn import ERRORS_TAG, MATCHES_TAG, CorrelateFn, ToGroupsFn
from rmqio.rules.correlation.outputs import Correlated
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.ruleset import RuleSet
from rmqio.rules.transform.outputs import MatchedMessage
from rmqio.security import Security
from rmqio.transforms import ReadFailure, WriteDeadLetters


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
