"""A correlation rule, as a value that all formats can make."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rmqio.rules.ir import Place


class CorrelationKind(StrEnum):
    """The ways to correlate. The names are Sigma's."""

    EVENT_COUNT = "event_count"
    VALUE_COUNT = "value_count"  # distinct values of a field
    TEMPORAL = "temporal"  # each of the rules matches, in any order
    TEMPORAL_ORDERED = "temporal_ordered"  # each of the rules matches, in their order


OPERATORS: Final = ("gte", "gt", "lte", "lt", "eq", "neq")
_NOWHERE: Final = Place()


@dataclass(frozen=True, slots=True)
class CorrelationRule:
    """A rule over the matches of other rules, in one group, within a span of event time.

    Attributes:
      rules: the ids of the rules whose matches it takes; of `temporal_ordered`, in their order.
      group_by: fields of the event; matches whose fields have equal values are one group.
      timespan_ms: how long the span is.
      operator, count: how the number compares, for `event_count` and `value_count`: one of `OPERATORS`.
      field: the field whose values `value_count` counts.
      aliases: for a name in `group_by` or `field`, the field that it stands for in the events of a rule:
        ((name, rule id, field), ...); of several fields, the first that has a value.
      generate: whether matches of `rules` are reported by themselves, too.
    """

    id: str
    kind: CorrelationKind
    rules: tuple[str, ...]
    timespan_ms: int
    group_by: tuple[str, ...] = ()
    operator: str = "gte"
    count: int = 1
    field: str = ""
    aliases: tuple[tuple[str, str, str], ...] = ()
    title: str = ""
    level: str = "medium"
    tags: tuple[str, ...] = ()
    generate: bool = False
    place: Place = _NOWHERE

    def fields_of(self, name: str, rule_id: str) -> tuple[str, ...]:
        """Returns the fields that a name stands for in the events of a rule: the first that has a value is taken."""
        there = tuple(field for alias, rule, field in self.aliases if alias == name and rule == rule_id)
        return there or (name,)
