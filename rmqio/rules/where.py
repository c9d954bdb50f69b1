"""Conditions of SQL over events: what stands after WHERE becomes a condition of `ir`, exact by three-valued logic.

Comparisons with constants, IN, LIKE, BETWEEN, IS NULL, AND, OR and NOT become atoms; any other condition becomes one of
`Kind.SQL`, which `sql_predicate` evaluates. A comparison is unknown if its field is null or not there; then neither it
nor its NOT matches.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqio.rules.ir import ANYTHING, NOTHING, Atom, Condition, Kind, all_of, any_of, negation
from rmqio.rules.where_evaluate import NO_CONSTANT, TRUTHS, chain, check, constant, path_of, sql_predicate
from rmqio.sql.conditions import deep_trees, nodes, parse_condition, placed, span_in
from rmqio.sql.errors import Refusal

_ORDER: Final = {"<": Kind.LESS, "<=": Kind.AT_MOST, ">": Kind.GREATER, ">=": Kind.AT_LEAST}
_WILDCARDS: Final = str.maketrans({"%": "*", "_": "?", "*": r"\*", "?": r"\?", "\\": r"\\"})
"""Of a LIKE pattern without ESCAPE, where a backslash is a character like others."""
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}

__all__ = ["condition_of", "sql_predicate"]


class _Truth(NamedTuple):
    """When a condition is true, and when it is false; else it is unknown."""

    true: Condition
    false: Condition


# ---- text to conditions ---------------------------------------------------------------------------------------------


def condition_of(text: str, file: str = "") -> Condition:
    """Returns the condition of a WHERE text. Raises `SqlError`, which is a `LocalError`, if it is not valid."""
    node = parse_condition(text, file)
    try:
        with deep_trees():
            return _truth(node, _Text(text)).true
    except Refusal as refusal:
        raise placed(refusal, text, file) from None
    except RecursionError:
        raise placed(Refusal("the condition is nested too deeply", None), text, file) from None


class _Text(NamedTuple):
    text: str

    def sql(self, node: nodes.Expression) -> str:
        span = span_in(node)
        return self.text[span.start : span.end]


def _truth(node: nodes.Expression, text: _Text) -> _Truth:
    is_negated = False
    while isinstance(node, nodes.Unary) and node.operator == "NOT":
        node, is_negated = node.operand, not is_negated
    return _negated(_truth_of(node, text), is_negated)


def _truth_of(node: nodes.Expression, text: _Text) -> _Truth:
    if isinstance(node, nodes.Binary) and node.operator in ("AND", "OR"):
        parts = [_truth(each, text) for each in chain(node)]
        trues, falses = [each.true for each in parts], [each.false for each in parts]
        if node.operator == "AND":
            return _Truth(all_of(*trues), any_of(*falses))
        return _Truth(any_of(*trues), all_of(*falses))
    if isinstance(node, nodes.Literal) and node.kind in ("boolean", "null"):
        return _Truth(ANYTHING if node.value is True else NOTHING, ANYTHING if node.value is False else NOTHING)
    if isinstance(node, nodes.IsTest):
        return _is_test(node, text)
    if (path := path_of(node)) is not None:
        true = Atom(path, Kind.EQUALS, True)  # a value that is no boolean is NULL where SQL needs one, and not FALSE
        return _Truth(true, all_of(Atom(path, Kind.EQUALS, False), negation(true)))
    return _plain(node) or _residual(node, text)


def _known(path: str, true: Condition) -> _Truth:
    """A condition on one field, which is unknown if the field is null or not there, and false if no value meets it."""
    return _Truth(true, all_of(_valued(path), negation(true)))


def _valued(path: str) -> Atom:
    """Whether the field has a value that is not null: any text, and each value has one."""
    return Atom(path, Kind.STARTS_WITH, "")


def _negated(truth: _Truth, is_negated: bool) -> _Truth:
    return _Truth(truth.false, truth.true) if is_negated else truth


def _is_test(node: nodes.IsTest, text: _Text) -> _Truth:
    if node.what == "NULL" and (path := path_of(node.operand)) is not None:
        is_null = any_of(negation(Atom(path, Kind.EXISTS)), Atom(path, Kind.IS_NULL))
        return _negated(_Truth(is_null, negation(is_null)), node.is_negated)
    if node.what not in TRUTHS:
        return _residual(node, text)
    true, false = _truth(node.operand, text)
    wanted = {"TRUE": true, "FALSE": false}.get(node.what) or all_of(negation(true), negation(false))
    return _negated(_Truth(wanted, negation(wanted)), node.is_negated)


def _plain(node: nodes.Expression) -> _Truth | None:
    """The atoms of a comparison with constants; None: it is none."""
    if isinstance(node, nodes.Binary) and node.operator in _MIRRORED:
        return _comparison(node.operator, node.left, node.right)
    if isinstance(node, nodes.Between) and not node.is_symmetric:
        low, high = _comparison(">=", node.operand, node.low), _comparison("<=", node.operand, node.high)
        if low is None or high is None:
            return None
        return _negated(_Truth(all_of(low.true, high.true), any_of(low.false, high.false)), node.is_negated)
    if isinstance(node, nodes.InList):
        parts = [_comparison("=", node.operand, each) for each in node.items]
        found = [each for each in parts if each is not None]
        if len(found) < len(parts):
            return None
        return _negated(_Truth(any_of(*(p.true for p in found)), all_of(*(p.false for p in found))), node.is_negated)
    if isinstance(node, nodes.Like) and node.kind == "LIKE":
        return _like(node)
    return None


def _comparison(operator: str, left: nodes.Expression, right: nodes.Expression) -> _Truth | None:
    path, other = path_of(left), path_of(right)
    if path is None and other is not None:
        operator, path, right, other = _MIRRORED[operator], other, left, None
    if path is None:
        return None
    if other is not None:
        if operator not in ("=", "<>"):
            return None
        true = Atom(path, Kind.FIELD, other)
        return _negated(_Truth(true, all_of(_valued(path), _valued(other), negation(true))), operator == "<>")
    value = constant(right)
    if value is NO_CONSTANT:
        return None
    if value is None:
        return _Truth(NOTHING, NOTHING)
    if operator in ("=", "<>"):
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # the text of an equal number is then "5", as JSON writes it, and not "5.0"
        return _negated(_known(path, Atom(path, Kind.EQUALS, value)), operator == "<>")
    if isinstance(value, (str, bool)):
        return None
    return _known(path, Atom(path, _ORDER[operator], value))


def _like(node: nodes.Like) -> _Truth | None:
    path = path_of(node.operand)
    pattern = constant(node.pattern)
    if path is None or not isinstance(pattern, str) or node.escape is not None:
        return None
    return _negated(_known(path, _atom_of_like(path, pattern)), node.is_negated)


def _atom_of_like(path: str, pattern: str) -> Atom:
    many, text = pattern.count("%"), pattern.replace("%", "")
    if "_" not in pattern:
        if many == 0:
            return Atom(path, Kind.EQUALS, text)
        if text and many == 1 and pattern[-1] == "%":
            return Atom(path, Kind.STARTS_WITH, text)
        if text and many == 1 and pattern[0] == "%":
            return Atom(path, Kind.ENDS_WITH, text)
        if text and many == 2 and pattern[0] == pattern[-1] == "%":
            return Atom(path, Kind.CONTAINS, text)
    return Atom(path, Kind.WILDCARD, pattern.translate(_WILDCARDS))


def _residual(node: nodes.Expression, text: _Text) -> _Truth:
    sql = text.sql(node)
    check(node)
    return _Truth(Atom(None, Kind.SQL, sql), Atom(None, Kind.SQL, f"NOT ({sql})"))
