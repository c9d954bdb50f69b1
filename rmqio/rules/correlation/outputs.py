"""A correlation that was found, as an element."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from apache_beam.coders import Coder, registry

from rmqio.errors import WireError


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
