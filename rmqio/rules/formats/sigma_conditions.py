"""The conditions and correlations of Sigma's rules: pySigma's trees as values of `ir`.

Text is compared without case unless `cased` says otherwise; regular expressions with case unless `i` says otherwise. A
null is a field that is null or not there.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionItem,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.correlations import SigmaCorrelationCondition
from sigma.exceptions import SigmaConditionError
from sigma.rule import SigmaDetectionItem
from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaRegularExpressionFlag,
    SigmaString,
    SigmaTimestampPart,
    SpecialChars,
)

from rmqio.hints import did_you_mean
from rmqio.rules.errors import Problem
from rmqio.rules.formats.sigma_documents import Document, reason_of
from rmqio.rules.ir import Atom, Condition, CorrelationKind, CorrelationRule, Kind, Rule, all_of, any_of, negation

# Sigma's correlation rules as values.

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


_FLAGS: Final = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}
_COMPARED: Final = {
    CompareOperators.LT: Kind.LESS,
    CompareOperators.LTE: Kind.AT_MOST,
    CompareOperators.GT: Kind.GREATER,
    CompareOperators.GTE: Kind.AT_LEAST,
}
_REFERRED: Final = {
    (False, False): Kind.FIELD,
    (True, False): Kind.STARTS_WITH_FIELD,
    (False, True): Kind.ENDS_WITH_FIELD,
    (True, True): Kind.CONTAINS_FIELD,
}
"""By `starts_with` and `ends_with`, both of which pySigma sets for contains."""


class _Refused(Exception):
    """A feature that a rule uses and the engine does not have."""


def rule_of(document: Document, filters: Sequence[Document], pipeline: Any) -> Rule | Problem:
    """Returns the rule of a document, after filters and the pipeline, or what is wrong with it."""
    rule = document.rule
    try:
        for each in filters:
            rule = copy.deepcopy(each.rule).apply_on_rule(rule)
        if pipeline is not None:
            rule = pipeline.apply(copy.deepcopy(rule))
        parsed = [each.parsed for each in rule.detection.parsed_condition]
        condition = any_of(*(_condition(each) for each in parsed if each is not None))
        if not any(each is not None for each in parsed):
            raise _Refused("the condition is empty after the pipeline")
    except _Refused as error:
        return document.item_problem(error, _refuse, filters)
    except RecursionError:
        return document.problem("the condition is nested too deeply", SigmaConditionError())
    except Exception as error:  # noqa: BLE001  # pipelines raise what Python raises on values that they do not expect
        return document.problem(reason_of(error), error)
    logsource = document.rule.logsource
    source = ((key, getattr(logsource, key)) for key in ("category", "product", "service"))
    return Rule(
        document.id,
        condition,
        rule.title or "",
        rule.level.name.lower() if rule.level is not None else "medium",
        tuple(map(str, rule.tags)),
        tuple((key, value) for key, value in source if value is not None),
        document.place,
    )


def fields_of(rules: Mapping[str, Any], pipeline: Any, name: str, rule_id: str) -> list[str]:
    """Returns what a field is in the events of a rule: a pipeline maps the fields that a rule lists, too."""
    rule = copy.deepcopy(rules[rule_id])
    rule.fields = [name]
    pipeline.apply(rule)
    return list(rule.fields)


def _condition(node: Any) -> Condition:
    if isinstance(node, ConditionFieldEqualsValueExpression):
        return _value(node.value, node.field)
    if isinstance(node, ConditionValueExpression):
        return _value(node.value, None)
    assert isinstance(node, ConditionItem)
    parts = [_condition(each) for each in node.args if each is not None]
    if isinstance(node, ConditionNOT):
        return negation(parts[0])
    if isinstance(node, ConditionAND):
        return all_of(*parts)
    if isinstance(node, ConditionOR):
        return any_of(*parts)
    raise _Refused(f"a condition of the kind {type(node).__name__} is not known")


def _refuse(item: SigmaDetectionItem) -> None:
    """Raises `_Refused` for an item that the engine does not have."""
    for each in item.value:
        _value(each, item.field)


@functools.singledispatch
def _value(value: Any, field: str | None) -> Condition:
    raise _Refused(f"a value of the kind {type(value).__name__.removeprefix('Sigma')} is not supported")


@_value.register
def _text(value: SigmaString, field: str | None) -> Condition:
    ignore_case = not isinstance(value, SigmaCasedString)
    for part in value.s:
        if isinstance(part, Placeholder):
            raise _Refused(
                f"the placeholder %{part.name}% has no value: a pipeline of pySigma can give it one, see mapping="
            )
    parts = list(value.s)
    if field is None:  # keywords are found anywhere in a text
        parts = [SpecialChars.WILDCARD_MULTI, *parts, SpecialChars.WILDCARD_MULTI]
    return _matched(field, _compact(parts), ignore_case)


def _compact(parts: Sequence[Any]) -> list[Any]:
    """The parts with texts joined, and one `*` for several in a row."""
    found: list[Any] = []
    for each in parts:
        if isinstance(each, str) and found and isinstance(found[-1], str):
            found[-1] += each
        elif each != "" and (each is not SpecialChars.WILDCARD_MULTI or not found or found[-1] is not each):
            found.append(each)
    return found


def _matched(field: str | None, parts: list[Any], ignore_case: bool) -> Condition:
    many = SpecialChars.WILDCARD_MULTI
    texts = [each for each in parts if isinstance(each, str)]
    if parts == [many]:
        if field is None:
            raise _Refused("a keyword of nothing but wildcards matches every event")
        return Atom(field, Kind.STARTS_WITH, "")  # any value that is not null
    shape = ["" if isinstance(each, str) else "*" if each is many else "?" for each in parts]
    kinds = {("",): Kind.EQUALS, ("*", "", "*"): Kind.CONTAINS, ("", "*"): Kind.STARTS_WITH, ("*", ""): Kind.ENDS_WITH}
    if not parts:
        return Atom(field, Kind.EQUALS, "", ignore_case)
    if (kind := kinds.get(tuple(shape))) is not None:
        return Atom(field, kind, texts[0], ignore_case)
    pattern = "".join(
        _escaped(part) if isinstance(part, str) else sign for part, sign in zip(parts, shape, strict=True)
    )
    return Atom(field, Kind.WILDCARD, pattern, ignore_case)


def _escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in "*?\\" else each for each in text)


@_value.register
def _timestamp_part(value: SigmaTimestampPart, field: str | None) -> Condition:
    del field
    raise _Refused(f"the modifier {value.timestamp_part.name.lower()} (part of a time) is not supported")


@_value.register
def _number(value: SigmaNumber, field: str | None) -> Condition:
    if field is None:
        return Atom(None, Kind.CONTAINS, str(value.number), ignore_case=True)
    return Atom(field, Kind.EQUALS, value.number)


@_value.register
def _boolean(value: SigmaBool, field: str | None) -> Condition:
    if field is None:
        return Atom(None, Kind.CONTAINS, str(value.boolean).lower(), ignore_case=True)
    return Atom(field, Kind.EQUALS, value.boolean, ignore_case=True)


@_value.register
def _null(value: SigmaNull, field: str | None) -> Condition:
    if field is None:
        raise _Refused("a null keyword has no meaning: null needs a field")
    return any_of(Atom(field, Kind.IS_NULL), negation(Atom(field, Kind.EXISTS)))


@_value.register
def _exists(value: SigmaExists, field: str | None) -> Condition:
    found = Atom(field, Kind.EXISTS)
    return found if value.exists else negation(found)


@_value.register
def _regular_expression(value: SigmaRegularExpression, field: str | None) -> Condition:
    if value.regexp.contains_placeholder():
        raise _Refused("a regular expression has a placeholder without a value")
    flags = "".join(sorted(_FLAGS[each] for each in value.flags))
    return Atom(field, Kind.REGEX, str(value.regexp), flags=flags)


@_value.register
def _network(value: SigmaCIDRExpression, field: str | None) -> Condition:
    return Atom(field, Kind.CIDR, str(value.network))


@_value.register
def _comparison(value: SigmaCompareExpression, field: str | None) -> Condition:
    if isinstance(value.number, SigmaTimestampPart):
        return _timestamp_part(value.number, field)
    if value.op is CompareOperators.NEQ:
        return negation(Atom(field, Kind.EQUALS, value.number.number))
    return Atom(field, _COMPARED[value.op], value.number.number)


@_value.register
def _field_reference(value: SigmaFieldReference, field: str | None) -> Condition:
    if field is None:
        raise _Refused("fieldref needs a field before it")
    return Atom(field, _REFERRED[value.starts_with, value.ends_with], value.field, ignore_case=True)


@_value.register
def _expansion(value: SigmaExpansion, field: str | None) -> Condition:
    each_of: Callable[[Any], Condition] = functools.partial(_value, field=field)
    return any_of(*map(each_of, value.values))
