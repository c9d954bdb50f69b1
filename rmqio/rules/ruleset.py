"""A set of rules: where they are, in which format, and what their fields are in the events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqio import security as security_options
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.errors import RuleError, without_problems
from rmqio.rules.formats import Mapping, Parsed, check_format, parse, whole
from rmqio.rules.ir import Rule
from rmqio.rules.sources import Files, Topic
from rmqio.rules.sources.base import Source
from rmqio.rules.trees import ANYTHING, text_of


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules that can change. A value: it is picklable, and holds no files or connections.

    Make it by `from_files`, `from_topic` or `of`. A set is valid as a whole, or not at all: `load` raises `RuleError`
    with everything that is wrong.
    """

    source: Source | None = None
    format: str | None = None
    mapping: Mapping = field(default_factory=Mapping)
    fixed: tuple[Rule | CorrelationRule, ...] = ()

    @classmethod
    def from_files(cls, *patterns: str | Path, format: str | None = None, mapping: Any = None) -> RuleSet:
        """Returns the set of files.

        Args:
          patterns: paths, patterns such as `rules/**/*.yml`, or a manifest, `rules/manifest.json`.
          format: sigma, where or json. Default: by the suffix of each file: .yml and .yaml, .sql and .where, .json.
          mapping: fields and log sources, see `Mapping.of`.
        """
        if not patterns:
            raise LocalError("RuleSet.from_files needs the path of a file, or a pattern")
        check_format(format)
        return cls(Files(tuple(map(str, patterns))), format, Mapping.of(mapping))

    @classmethod
    def from_topic(
        cls,
        topic: str,
        *,
        name_server: str | None = None,
        format: str | None = None,
        mapping: Any = None,
        security: security_options.Security | None = None,
        timeout_s: float = 30.0,
        client_factory: ClientFactory | None = None,
    ) -> RuleSet:
        """Returns the set of a topic: a message's key is the name of a file, its body the text; no body removes it.

        Args:
          topic: which; the newest message of each key counts.
          name_server: addresses, as `ReadFromRocketMQ` takes them; default: NAMESRV_ADDR.
          format, mapping: as in `from_files`; the suffix is that of the key.
          security: access keys and TLS.
          timeout_s: how long one reading may take.
          client_factory: instead of `name_server` and `security`.
        """
        check_format(format)
        if client_factory is None:
            from rmqio.client.factory import RemotingClientFactory
            from rmqio.options import options_of_cluster

            client_factory = RemotingClientFactory(options_of_cluster(name_server, security))
        return cls(Topic(topic, client_factory, timeout_s), format, Mapping.of(mapping))

    @classmethod
    def of(cls, rules: Iterable[Rule | CorrelationRule]) -> RuleSet:
        """Returns a set of rules that do not change. Raises `RuleError` for a value that is not known, as a level."""
        fixed = tuple(rules)
        for each in fixed:
            if not isinstance(each, (Rule, CorrelationRule)):
                raise LocalError(f"RuleSet.of takes rules, not {type(each).__name__}; see RuleSet.from_files for texts")
        if problems := tuple(whole.problems_of_values(fixed)):
            raise RuleError(problems)
        return cls(fixed=fixed)

    def load(self) -> tuple[Rule, ...]:
        """Returns the rules, without correlations. Raises `RuleError`, or `RmqioError` if the topic cannot be read."""
        return self.loaded().rules

    def correlations(self) -> tuple[CorrelationRule, ...]:
        """Returns the correlations of the set. Raises as `load` does."""
        return self.loaded().correlations

    def after_start(self) -> RuleSet:
        """Returns the set as it is read once it has been read: files may all have been deleted since.

        At first, a pattern without files is an error, since it is likely to be a mistake.
        """
        if isinstance(self.source, Files):
            return replace(self, source=replace(self.source, may_be_empty=True))
        return self

    def loaded(self) -> Parsed:
        """Returns rules and correlations. Raises as `load` does."""
        found = self.parsed()
        if found.problems:
            raise RuleError(found.problems)
        return found

    def parsed(self) -> Parsed:
        """Returns what is valid, and the problems of the rest. Raises only if the source cannot be read."""
        if self.source is None:
            rules = tuple(each for each in self.fixed if isinstance(each, Rule))
            others = tuple(each for each in self.fixed if isinstance(each, CorrelationRule))
            found = Parsed(rules, others)
        else:
            found = parse(self.source.texts(), self.format, self.mapping)
        return Parsed(found.rules, found.correlations, (*found.problems, *whole.problems_of(found)))

    def usable(self) -> Parsed:
        """Returns the rules and the correlations with which nothing is wrong, and the problems of the others.

        Raises only if the source cannot be read.
        """
        found = self.parsed()
        rules, correlations = (
            tuple(without_problems(some, found.problems)) for some in (found.rules, found.correlations)
        )
        return Parsed(rules, correlations, found.problems)

    def signature(self) -> str:
        """Returns a text that changes when the set does, without reading the rules."""
        if self.source is None:
            texts = [text_of(each.condition) if isinstance(each, Rule) else "" for each in self.fixed]
            parts = [replace(each, condition=ANYTHING) if isinstance(each, Rule) else each for each in self.fixed]
            return hashlib.blake2b(repr((parts, texts)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return f"{self.source.signature()}-{self.format}-{self.mapping.identity()}"
