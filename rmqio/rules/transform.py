"""`MatchRules`, the Beam transform, and what it gives. Its configuration is checked when it is built."""

from __future__ import annotations

import dataclasses
import functools
import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.coders import FastPrimitivesCoder, registry
from apache_beam.metrics import Metrics
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.typehints.typehints import ListConstraint

from rmqio.batches import Batch
from rmqio.errors import LocalError, SerdeError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message, Record
from rmqio.rules.alerts import alert_message
from rmqio.rules.engine import Hit, Matcher
from rmqio.rules.errors import Limits
from rmqio.rules.ir import Rule
from rmqio.rules.live import FolderStore, LiveRules, OnBadRule, RuleSource, live_rules
from rmqio.rules.match.columns import failure_text
from rmqio.security import Security
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import (
    DECODE_ERRORS,
    ENCODE_ERRORS,
    BatchConstraint,
    HandlesFailures,
    RecordCoder,
    ValueCoder,
    failure_of_record,
    failure_of_value,
    observe_process,
)

# The elements that `MatchRules` gives, and their coders.


class Match(NamedTuple):
    """A rule that a message matches."""

    message: Any
    """The element; None in a `MatchedMessage`, which has it itself."""
    rule_id: str
    title: str
    level: str
    tags: tuple[str, ...]
    ruleset_version: str
    """The hash of the rules that were in force."""
    atoms: tuple[tuple[str, str, Any], ...]
    """The reasons: field, condition, and the value of the message."""


class MatchedMessage(NamedTuple):
    """A message with the rules that it matches: one or more."""

    message: Any
    ruleset_version: str
    matches: tuple[Match, ...]


_ANY: Final = FastPrimitivesCoder()
_RECORD: Final = RecordCoder()
_HEAD: Final = struct.Struct(">BBI")
_BYTES, _RECORDS, _OTHERS = 0, 1, 2


class _MessageAndRest(ValueCoder):
    """Version, kind and size of the message; the message; then the rest, of plain values."""

    def is_deterministic(self) -> bool:
        return False  # a message can be a dict

    def _encoded(self, message: Any, rest: tuple[Any, ...]) -> bytes:
        try:
            if isinstance(message, bytes):
                kind, raw = _BYTES, message
            elif isinstance(message, Record):
                kind, raw = _RECORDS, _RECORD.encode(message)
            else:
                kind, raw = _OTHERS, _ANY.encode(message)
            return _HEAD.pack(1, kind, len(raw)) + raw + bytes(_ANY.encode(rest))
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(message, error) from error

    def _decoded(self, encoded: bytes) -> tuple[Any, tuple[Any, ...]]:
        try:
            version, kind, size = _HEAD.unpack_from(encoded)
            end = _HEAD.size + size
            if version != 1 or kind > _OTHERS or end > len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            raw = encoded[_HEAD.size : end]
            message = raw if kind == _BYTES else _RECORD.decode(raw) if kind == _RECORDS else _ANY.decode(raw)
            return message, _ANY.decode(encoded[end:])
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error


class MatchCoder(_MessageAndRest):
    """The message, then the fields of the match."""

    value_type = Match

    def encode(self, value: Match) -> bytes:
        return self._encoded(value[0], tuple(value[1:]))

    def decode(self, encoded: bytes) -> Match:
        message, rest = self._decoded(encoded)
        return Match(message, *rest)


class MatchedMessageCoder(_MessageAndRest):
    """The message, then the version and the fields of each match."""

    value_type = MatchedMessage

    def encode(self, value: MatchedMessage) -> bytes:
        return self._encoded(value[0], (value[1], *(tuple(each[1:]) for each in value[2])))

    def decode(self, encoded: bytes) -> MatchedMessage:
        message, rest = self._decoded(encoded)
        return MatchedMessage(message, rest[0], tuple(Match(None, *each) for each in rest[1:]))


registry.register_coder(Match, MatchCoder)
registry.register_coder(MatchedMessage, MatchedMessageCoder)


# Elements to what a matcher takes: bodies of JSON, or events.


def body_of(element: Any) -> bytes | None:
    """The body of an element; None: it is an event, or can be made one."""
    if isinstance(element, (Record, Message)):
        return element.body
    if isinstance(element, bytes):
        return element
    return element.encode("utf-8", "surrogatepass") if isinstance(element, str) else None


def event_of_element(element: Any) -> Mapping[str, Any]:
    """The event that an element is: a mapping, a `beam.Row` or a named tuple. Raises `LocalError`."""
    event = _plain(element)
    if not isinstance(event, Mapping):
        raise LocalError(
            f"MatchRules takes bodies of JSON, Records, dicts, Rows and named tuples, not "
            f"{type(element).__name__}; for lists of them, give batches=True"
        )
    return event


_SINGLE: Final = frozenset({str, int, float, bool, bytes, type(None)})
_WITH_MEMBERS: Final = (beam.Row, Mapping, list, tuple)
_DEEPEST: Final = 1_001
"""One more than the levels of JSON that Python reads; a list that contains itself has more."""


def _plain(value: Any) -> Any:
    """The value with Rows and named tuples as dicts, at any depth; the same object if it has none."""
    if _is_plain(value):
        return value
    if isinstance(value, beam.Row):
        return {name: _plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        changed = {name: plain for name, each in value.items() if (plain := _plain(each)) is not each}
        return {**value, **changed} if changed else value
    if isinstance(value, (list, tuple)):
        plain_members = [_plain(each) for each in value]
        return plain_members if any(map(operator.is_not, plain_members, value)) else value
    return value


def _is_plain(value: Any) -> bool:
    """Whether there is nothing to replace. It does not recurse: what is not too deep for JSON is not so here."""
    rest = [iter((value,))]
    while rest and len(rest) < _DEEPEST:
        for one in rest[-1]:
            if one.__class__ is dict:
                rest.append(iter(one.values()))
                break
            if one.__class__ is list:
                rest.append(iter(one))
                break
            if one.__class__ not in _SINGLE and isinstance(one, _WITH_MEMBERS):
                return False
        else:
            rest.pop()
    return not rest


# Elements that are not events, as failures with the coordinates that are known.


def failure_of(element: Any, error: Exception) -> ReadFailure:
    """Returns the failure of an element."""
    return _failure(element, None, -1, error)


def failure_in(batch: Sequence[Any], position: int, error: Exception) -> ReadFailure:
    """Returns the failure of a member of a batch."""
    if isinstance(batch, Batch) and batch.queue is not None:
        return _failure(batch[position], batch.queue, batch.offsets[position], error)
    return _failure(batch[position], None, -1, error)


def _failure(value: Any, queue: Any, offset: int, error: Exception) -> ReadFailure:
    reason = SerdeError(failure_text(error))
    if isinstance(value, Record):
        return failure_of_record(value, reason)
    failure = failure_of_value(value, queue, offset, reason)
    return failure._replace(body=value, kind="") if isinstance(value, bytes) else failure


# The DoFn of `MatchRules`: one matcher for a bundle.

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


Which = Literal["all", "first", "best"]
Output = Literal["match", "message"]
_DEFAULTS: Final = Limits()


class MatchRulesResult(NamedTuple):
    """The outputs of `MatchRules`, with the window and timestamp of their element."""

    hits: PCollection[Match]
    """A `Match` for each rule that a message matches, or a `MatchedMessage` for each message that matches a rule.
    Batches give a `Batch` of them, with the places of the messages."""
    errors: PCollection[ReadFailure]
    """The elements that are not JSON objects, also those that go to an error handler or to dead letters."""


class MatchRules(HandlesFailures):
    """Finds for each message the rules that it matches.

    Elements are bodies of JSON (bytes, text, `Record`, `Message`), or events: dicts, Rows, named tuples. With
    `batches`, they are lists of these, such as those of `ReadFromRocketMQ(batches=True)`.

    Args:
      ruleset: where the rules come from: an object with `load()` and `signature()` that pickles, such as a `RuleSet`.
      refresh_s: how old the rules of a bundle may be. When the source has changed, the new rules are compiled beside
        the work, and bundles that begin afterwards have them.
      match: "all" rules that match, the "first" in the order of the set, or the "best": the first of the highest level.
      on_bad_rule: if some of the rules cannot be used: "skip" them, which the log lists, also at first; or, if the
        source has changed to such rules, "keep_previous" rules, or "fail" the bundle. With these two, the first load
        fails, and so it does if all have to be left out.
      max_value_bytes: of a longer text in a message, the beginning is looked at.
      output: "match" or "message", see `MatchRulesResult`.
      batches: whether elements are lists; None: by the type of the input.
      limits: bounds on the rules.
      cache_folder: for compiled patterns that processes of a machine share; None: in the user's cache folder.
      dead_letter_topic: a topic for elements that are not JSON objects.
      name_server, security, client_factory: for the dead-letter topic, as in `WriteToRocketMQ`.

    Returns: `MatchRulesResult`, which can be unpacked: `hits, errors = messages | MatchRules(...)`. Whoever leaves
    `errors` aside loses these elements; they are counted (`broken`).

    Raises: `LocalError` when it is built; `RuleError` from the workers, for the first rules.
    """

    def __init__(
        self,
        ruleset: RuleSource,
        *,
        refresh_s: float = 30,
        match: Which = "all",
        on_bad_rule: OnBadRule = "keep_previous",
        max_value_bytes: int = _DEFAULTS.max_value_bytes,
        output: Output = "match",
        batches: bool | None = None,
        limits: Limits | None = None,
        cache_folder: str | None = None,
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        for method in ("load", "signature"):
            if not callable(getattr(ruleset, method, None)):
                raise LocalError(f"ruleset is {type(ruleset).__name__}, which has no {method}(); give a RuleSet")
        if isinstance(refresh_s, bool) or not isinstance(refresh_s, (int, float)) or not refresh_s > 0:
            raise LocalError(f"refresh_s is {refresh_s!r}; it must be a number of seconds above 0")
        for name, value, known in (
            ("match", match, get_args(Which)),
            ("on_bad_rule", on_bad_rule, get_args(OnBadRule)),
            ("output", output, get_args(Output)),
        ):
            if value not in known:
                raise LocalError(f"{name} is {value!r}; there are {', '.join(known)}")
        if limits is not None and not isinstance(limits, Limits):
            raise LocalError(f"limits is {type(limits).__name__}; it must be Limits, of rmqio.rules.errors")
        self._ruleset = ruleset
        self._refresh_s = refresh_s
        self._match = match
        self._on_bad_rule = on_bad_rule
        self._limits = dataclasses.replace(limits or _DEFAULTS, max_value_bytes=max_value_bytes)
        self._output = output
        self._batches = batches
        self._cache_folder = cache_folder

    def expand(self, messages: Any) -> MatchRulesResult:
        batches = isinstance(messages.element_type, ListConstraint) if self._batches is None else self._batches
        label = messages.pipeline.transforms_stack[-1].full_label
        live = functools.partial(
            rules_of_process, self._ruleset, self._refresh_s, self._on_bad_rule, self._limits, self._cache_folder
        )
        fn = MatchFn(live, self._match, label, whole=self._output == "message", batches=batches)
        outputs = messages | "Match" >> beam.ParDo(fn).with_outputs(ERRORS_TAG, main="hits")
        hits, errors = outputs["hits"], outputs[ERRORS_TAG]
        made = Match if self._output == "match" else MatchedMessage
        hits.element_type = BatchConstraint(made) if batches else made
        self.take_failures(errors)
        return MatchRulesResult(hits, errors)

    def display_data(self) -> dict[str, Any]:
        shown = {
            "ruleset": str(self._ruleset),
            "refresh_s": self._refresh_s,
            "match": self._match,
            "dead_letter_topic": self._dead_letter_topic,
        }
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}


class AlertMessages(beam.PTransform):
    """Makes a message of each match, see `alert_message`. The place of an alert is that of its event.

    Elements: batches of `Match` from a topic, as `MatchRules` gives them for `ReadFromRocketMQ(batches=True)`.
    Returns: batches of `Message`, for `WriteToRocketMQ(batches=True)`.
    """

    def expand(self, hits: Any) -> Any:
        return hits | beam.ParDo(_AlertsFn()).with_output_types(BatchConstraint(Message))


class _AlertsFn(beam.DoFn):
    def process(self, element: Batch[Match]) -> Iterator[Batch[Any]]:
        queue = element.queue
        if queue is None:
            raise LocalError("AlertMessages takes batches of a topic: read with batches=True")
        pairs = zip(element, element.offsets, strict=True)
        yield element.with_values([alert_message(match, queue, offset) for match, offset in pairs])


def rules_of_process(
    source: RuleSource, refresh_s: float, on_bad_rule: OnBadRule, limits: Limits, cache_folder: str | None
) -> LiveRules:
    """Returns the rules that the DoFns of a process share."""

    def made() -> LiveRules:
        return LiveRules(
            source, refresh_s=refresh_s, on_bad_rule=on_bad_rule, limits=limits, store=FolderStore(cache_folder)
        )

    return live_rules(source, made, refresh_s, on_bad_rule, limits, cache_folder)
