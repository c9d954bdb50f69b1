"""The DoFn of `MatchRules`: one matcher for a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics

from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.rules.engine import Hit, Matcher
from rmqio.rules.ir import Rule
from rmqio.rules.live import LiveRules
from rmqio.rules.transform.events import body_of, event_of_element
from rmqio.rules.transform.outputs import Match, MatchedMessage
from rmqio.rules.transform.read_failures import failure_in, failure_of
from rmqio.transforms.parts import observe_process

ERRORS_TAG: Final = "errors"
NAMESPACE: Final = "rmqio.rules"
_MOST_NAMES: Final = 1_000
_LEVELS: Final = {"informational": 0, "low": 1, "medium": 2, "high": 3, "critical": 4}


class MatchFn(beam.DoFn):
    """Emits what matches, and to `ERRORS_TAG` the elements that are not events.

    Args:
      live: returns the rules of the process.
      match: all, first or best.
      whole: whether to emit messages with their matches, and not matches.
      batches: whether elements are lists.
      step: what distinguishes the results from those of other transforms of the same records.
    """

    def __init__(self, live: Callable[[], LiveRules], match: str, step: str, *, whole: bool, batches: bool) -> None:
        self._live_of = live
        self._match = match
        self._whole = whole
        self._batches = batches
        self._step = step
        self._live: LiveRules | None = None
        self._matcher: Matcher | None = None
        self._rule_counts: dict[str, int] = {}
        self._named: set[str] = set()
        self._seen = self._broken = 0

    def setup(self) -> None:
        observe_process()
        self._live = self._live_of()

    def start_bundle(self) -> None:
        assert self._live is not None
        self._matcher = self._live.pinned()

    def process(self, element: Any) -> Iterator[Any]:
        if not self._batches:
            outputs, failures = self._results([element])
            for _, output in outputs:
                yield output
        else:
            if isinstance(element, (str, bytes)) or not isinstance(element, list):
                raise LocalError(f"batches=True, but this element is not a list: {type(element).__name__}")
            batch = element if isinstance(element, Batch) else Batch(element)
            outputs, failures = self._results(batch)
            if outputs:
                positions = [position for position, _ in outputs]
                values = [output for _, output in outputs]
                # Else the id of an alert would depend on which other rules match: on its place among them.
                variants = None if self._whole else [each.rule_id for each in values]
                yield batch.with_values(values, positions, step=self._step, variants=variants)
        for position, error in failures.items():
            failure = failure_in(element, position, error) if self._batches else failure_of(element, error)
            yield beam.pvalue.TaggedOutput(ERRORS_TAG, failure)

    def finish_bundle(self) -> None:
        """Updates the metrics: once a bundle, and with a bounded number of names."""
        self._add("events", self._seen)
        self._add("broken", self._broken)
        self._add("matches", sum(self._rule_counts.values()))
        for rule_id, count in self._rule_counts.items():
            if rule_id not in self._named and len(self._named) >= _MOST_NAMES:
                self._add("matches_of_other_rules", count)
                continue
            self._named.add(rule_id)
            self._add(f"matches_of.{rule_id}", count)
        self._seen = self._broken = 0
        self._rule_counts = {}
        if self._matcher is not None:
            cuts = self._matcher.taken_cuts()
            self._add("texts_cut", cuts.texts)
            self._add("lists_cut", cuts.lists)
        if self._live is not None:
            counts = self._live.taken_counts()
            self._add("reloads", counts.reloads)
            self._add("reload_failures", counts.failures)
            self._add("rules_left_out", counts.left_out)

    @staticmethod
    def _add(name: str, count: int) -> None:
        if count:
            Metrics.counter(NAMESPACE, name).inc(count)

    def _results(self, elements: Sequence[Any]) -> tuple[list[tuple[int, Any]], dict[int, Exception]]:
        """The outputs with their positions, in order; and the errors by position."""
        matcher = self._matcher
        assert matcher is not None
        found, failures = _found(matcher, elements)
        self._seen += len(elements)
        self._broken += len(failures)
        outputs: list[tuple[int, Any]] = []
        for position in sorted(found):
            element = elements[position]
            hits = self._chosen(found[position])
            message = None if self._whole else element
            matches = [_match(hit.rule, hit, message, matcher.version) for hit in hits]
            for each in matches:
                self._rule_counts[each.rule_id] = self._rule_counts.get(each.rule_id, 0) + 1
            if self._whole:
                outputs.append((position, MatchedMessage(element, matcher.version, tuple(matches))))
            else:
                outputs += [(position, each) for each in matches]
        return outputs, failures

    def _chosen(self, hits: list[Hit]) -> list[Hit]:
        if self._match == "all":
            return hits
        return [hits[0] if self._match == "first" else max(hits, key=_level)]  # max: the first of equal ones


def _found(matcher: Matcher, elements: Sequence[Any]) -> tuple[dict[int, list[Hit]], dict[int, Exception]]:
    bodies = [body_of(element) for element in elements]
    if None not in bodies:
        return matcher.find(bodies)  # type: ignore[arg-type]
    found: dict[int, list[Hit]] = {}
    failures: dict[int, Exception] = {}
    for position, (element, body) in enumerate(zip(elements, bodies, strict=True)):
        try:
            hits, errors = matcher.find_events([event_of_element(element)]) if body is None else matcher.find([body])
        except RecursionError as error:
            failures[position] = error
            continue
        if errors:
            failures[position] = errors[0]
        elif hits:
            found[position] = hits[0]
    return found, failures


def _match(rule: Rule, hit: Hit, message: Any, version: str) -> Match:
    return Match(message, rule.id, rule.title, rule.level, rule.tags, version, hit.atoms)


def _level(hit: Hit) -> int:
    return _LEVELS.get(hit.rule.level, -1)
