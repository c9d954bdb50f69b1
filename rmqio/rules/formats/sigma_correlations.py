"""Sigma's correlation rules as values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sigma.correlations import SigmaCorrelationCondition

from rmqio.near_names import did_you_mean
from rmqio.rules.correlation.rule import CorrelationKind, CorrelationRule
from rmqio.rules.errors import Problem
from rmqio.rules.formats.sigma_documents import Document

_TEMPORAL: Final = (CorrelationKind.TEMPORAL, CorrelationKind.TEMPORAL_ORDERED)


def correlation_of(document: Document, known: Mapping[str, str], good: Collection[str]) -> CorrelationRule | Problem:
    """Returns the correlation of a document, or what is wrong with it.

    Args:
      known: ids of rules by id and by name.
      good: the ids of the rules that are valid.
    """
    rule = document.rule
    kinds = [each.value for each in CorrelationKind]

    def refused(reason: str, *path: str) -> Problem:
        return document.problem(reason, path=("correlation", *path))

    name = rule.type.name.lower()
    if name not in kinds:
        return refused(f"the correlation type {name} is not supported: it is not one of {', '.join(kinds)}", "type")
    condition = rule.condition
    if not isinstance(condition, SigmaCorrelationCondition):
        return refused("a condition of several rules by and, or, not is not supported: use several rules", "condition")
    kind, operator = CorrelationKind(name), condition.op.name.lower()
    ids = []
    for reference in [each.reference for each in rule.rules or ()]:
        if reference not in known:
            missing = f"there is no rule {reference!r} in the set{did_you_mean(reference, known)}"
            return refused(f"{missing}; it cannot be a correlation", "rules", reference)
        if known[reference] not in good:
            return refused(f"the rule {reference!r} that it takes is not valid", "rules", reference)
        ids.append(known[reference])
    if not ids:
        return refused("the correlation names no rule", "rules")
    fields = condition.fieldref
    if isinstance(fields, list) and len(fields) != 1:
        return refused("value_count of several fields is not supported: name one", "condition", "field")
    field = fields[0] if isinstance(fields, list) else fields or ""
    if not isinstance(condition.count, int):
        return refused(f"the count must be a whole number, not {condition.count}", "condition", operator)
    if kind in _TEMPORAL and (operator, condition.count) != ("gte", len(ids)):
        return refused(f"{kind.value} takes all of its rules: leave the condition out", "condition")
    aliases = []
    for alias in rule.aliases:
        for reference, there in alias.mapping.items():
            if known.get(reference.reference) not in ids:
                wrong = f"the alias {alias.alias!r} names the rule {reference.reference!r}"
                path = ("aliases", alias.alias, reference.reference)
                return refused(f"{wrong}, which the correlation does not take", *path)
            aliases.append((alias.alias, known[reference.reference], there))
    return CorrelationRule(
        document.id,
        kind,
        tuple(ids),
        rule.timespan.seconds * 1000,
        tuple(rule.group_by or ()),
        operator,
        condition.count,
        field,
        tuple(aliases),
        rule.title or "",
        rule.level.name.lower() if rule.level is not None else "medium",
        tuple(map(str, rule.tags)),
        bool(rule.generate),
        document.place,
    )
