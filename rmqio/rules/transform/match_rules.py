"""`MatchRules`: its configuration, which is checked when it is built, and its expansion."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final, Literal, NamedTuple, get_args

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.typehints.typehints import ListConstraint

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.rules.limits import Limits
from rmqio.rules.live import LiveRules, OnBadRule, RuleSource, live_rules
from rmqio.rules.store import FolderStore
from rmqio.rules.transform.match_fn import ERRORS_TAG, MatchFn
from rmqio.rules.transform.outputs import Match, MatchedMessage
from rmqio.security import Security
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import BatchConstraint, HandlesFailures

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
            raise LocalError(f"limits is {type(limits).__name__}; it must be Limits, of rmqio.rules.limits")
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


def rules_of_process(
    source: RuleSource, refresh_s: float, on_bad_rule: OnBadRule, limits: Limits, cache_folder: str | None
) -> LiveRules:
    """Returns the rules that the DoFns of a process share."""

    def made() -> LiveRules:
        return LiveRules(
            source, refresh_s=refresh_s, on_bad_rule=on_bad_rule, limits=limits, store=FolderStore(cache_folder)
        )

    return live_rules(source, made, refresh_s, on_bad_rule, limits, cache_folder)
