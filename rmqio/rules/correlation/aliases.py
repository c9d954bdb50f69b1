"""The fields of correlations, as they are in the events of each rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rmqio.rules.correlation.rule import CorrelationRule


def with_fields(rule: CorrelationRule, fields_of: Callable[[str, str], Sequence[str]]) -> CorrelationRule:
    """Returns a correlation with the fields of the events.

    The names stay as they are, and what they are in the events of each rule becomes an alias. If a name is the same
    field for all rules, it is called as that field.

    Args:
      fields_of: of a field and the id of a rule: what that field is in the events of the rule.
    """
    names = dict.fromkeys([*rule.group_by, *([rule.field] if rule.field else [])])
    called: dict[str, str] = {}
    aliases: list[tuple[str, str, str]] = []
    for name in names:
        there = {
            rule_id: [each for given in rule.fields_of(name, rule_id) for each in fields_of(given, rule_id)]
            for rule_id in dict.fromkeys(rule.rules)
        }
        found = {each for fields in there.values() for each in fields}
        if len(found) == 1 and not any(alias == name for alias, _, _ in rule.aliases):
            called[name] = found.pop()
        else:
            aliases += [(name, rule_id, each) for rule_id, fields in there.items() for each in fields]
    group_by = tuple(called.get(name, name) for name in rule.group_by)
    return replace(rule, group_by=group_by, field=called.get(rule.field, rule.field), aliases=tuple(aliases))
