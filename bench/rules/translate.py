"""Rules in the languages of the peers: Sigma's YAML for rsigma, expressions for RocketMQ Streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Rule

_MODIFIERS = {
    Kind.EQUALS: "", Kind.CONTAINS: "|contains", Kind.STARTS_WITH: "|startswith", Kind.ENDS_WITH: "|endswith",
    Kind.REGEX: "|re|i", Kind.GREATER: "|gt",
}  # fmt: skip
_FUNCTIONS = {Kind.EQUALS: "==", Kind.CONTAINS: "contains", Kind.GREATER: ">"}


def as_sigma(rules: Sequence[Rule]) -> str:
    """Returns the rules as documents of Sigma. Conditions of one field and kind are a list, as people write them."""
    return "\n---\n".join(json.dumps(_document(rule)) for rule in rules)


def _document(rule: Rule) -> dict[str, Any]:
    detection: dict[str, Any] = {}

    def named(key: str, value: Any) -> str:
        name = f"s{len(detection)}"
        detection[name] = {key: value}
        return name

    def text_of(condition: Condition) -> str:
        if isinstance(condition, Atom):
            return named(_key(condition), condition.value)
        if isinstance(condition, Not):
            return f"not ({text_of(condition.condition)})"
        atoms = [each for each in condition.conditions if isinstance(each, Atom)]
        is_list = len(atoms) == len(condition.conditions) > 1 and len({_key(each) for each in atoms}) == 1
        if is_list and (isinstance(condition, Or) or atoms[0].kind is Kind.CONTAINS):
            return named(_key(atoms[0]) + ("|all" if isinstance(condition, And) else ""), [a.value for a in atoms])
        word = " and " if isinstance(condition, And) else " or "
        return f"({word.join(text_of(each) for each in condition.conditions)})"

    condition = text_of(rule.condition)
    return {
        "title": rule.id, "logsource": {"category": "bench"}, "level": rule.level,
        "detection": {**detection, "condition": condition},
    }  # fmt: skip


def _key(atom: Atom) -> str:
    is_cased = isinstance(atom.value, str) and atom.kind is not Kind.REGEX and not atom.ignore_case
    return f"{atom.field}{_MODIFIERS[atom.kind]}{'|cased' if is_cased else ''}"


def as_expressions(rules: Sequence[Rule]) -> str:
    """Returns a line for each rule: its id, a tab, and an expression of RocketMQ Streams. Texts are with case."""
    return "".join(f"{rule.id}\t{_expression(rule.condition)}\n" for rule in rules)


def _expression(condition: Condition) -> str:
    if isinstance(condition, Not):
        inner = condition.condition
        assert isinstance(inner, Atom)
        assert inner.kind is Kind.STARTS_WITH
        return f"({inner.field},!like,'{inner.value}%')"
    if isinstance(condition, Atom):
        # Without the type, numbers are compared as texts: 53 is greater than 500.
        shown = f"'{condition.value}'" if isinstance(condition.value, str) else f"int,{condition.value}"
        return f"({condition.field},{_FUNCTIONS[condition.kind]},{shown})"
    return "(" + ("&" if isinstance(condition, And) else "|").join(map(_expression, condition.conditions)) + ")"
