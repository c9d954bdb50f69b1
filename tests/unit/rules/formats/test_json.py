"""Rules as JSON: nothing is lost, and every mistake has a place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmqio.rules.formats
from rmqio.errors import LocalError
from rmqio.rules.formats import RuleText, parse
from rmqio.rules.formats.base import LEVELS
from rmqio.rules.formats.json_rules import dumps
from rmqio.rules.ir import OPERATORS, And, Atom, Condition, CorrelationKind, CorrelationRule, Kind, Not, Or, Place, Rule

_SCHEMA = json.loads(Path(rmqio.rules.formats.__file__).with_name("rules.schema.json").read_text())
_NAME = st.text(min_size=1, max_size=5)
_TEXT_KINDS = (
    Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.WILDCARD, Kind.REGEX, Kind.CIDR, Kind.FIELD, Kind.SQL,
)  # fmt: skip
_VALUES = st.one_of(
    st.text(max_size=5), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()
)
_ATOMS = st.one_of(
    st.builds(Atom, st.none() | _NAME, st.sampled_from([Kind.EXISTS, Kind.IS_NULL])),
    st.builds(Atom, st.none() | _NAME, st.sampled_from([Kind.EQUALS, Kind.LESS]), _VALUES, st.booleans()),
    st.builds(
        Atom, st.none() | _NAME, st.sampled_from(_TEXT_KINDS), st.text(max_size=5), st.booleans(),
        st.sampled_from(["", "i", "ims"]),
    ),
)  # fmt: skip
_CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=8,
)
_COMMON: dict[str, Any] = {
    "id": _NAME, "title": st.text(max_size=5), "level": st.sampled_from(LEVELS),
    "tags": st.lists(_NAME, max_size=2).map(tuple),
}  # fmt: skip
_RULES = st.one_of(
    st.builds(
        Rule, condition=_CONDITIONS, **_COMMON,
        source=st.dictionaries(_NAME, _NAME, max_size=2).map(lambda found: tuple(found.items())),
    ),
    st.builds(
        CorrelationRule, **_COMMON, kind=st.sampled_from(CorrelationKind), timespan_ms=st.integers(1),
        rules=st.lists(_NAME, min_size=1, max_size=3).map(tuple), group_by=st.lists(_NAME, max_size=2).map(tuple),
        operator=st.sampled_from(OPERATORS), count=st.integers(0), field=_NAME, generate=st.booleans(),
        aliases=st.lists(st.tuples(_NAME, _NAME, _NAME), max_size=2).map(tuple),
    ),
)  # fmt: skip


@given(st.lists(_RULES, max_size=4))
@settings(deadline=None)
def test_rules_come_back_as_they_were(rules: list[Rule | CorrelationRule]) -> None:
    text = dumps(rules)
    found = parse([RuleText("rules.json", text)])
    assert not found.problems
    back: list[Rule | CorrelationRule] = [replace(each, place=Place()) for each in found.rules]
    back += [replace(each, place=Place()) for each in found.correlations]
    wanted = [*(r for r in rules if isinstance(r, Rule)), *(r for r in rules if isinstance(r, CorrelationRule))]
    assert list(map(repr, back)) == list(map(repr, wanted))  # 1, 1.0 and True are equal
    jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="the extra json-schema is not installed")
    jsonschema_rs.validator_for(_SCHEMA).validate(json.loads(text))


def test_a_rule_has_the_line_where_it_begins() -> None:
    text = '[\n {"id": "a", "condition": {"field": "x", "is": "exists"}},\n\n {"id": "b", "condition": {"all": []}}]'
    found = parse([RuleText("r.json", text)])
    assert [(each.id, each.place) for each in found.rules] == [("a", Place("r.json", 2)), ("b", Place("r.json", 4))]


_ATOM = {"field": "x", "is": "exists"}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"condition": _ATOM}, "'id' is missing"),
        ({"id": "a"}, "a condition, or a correlation"),
        ({"id": "a", "condition": _ATOM, "titel": "x"}, "no key 'titel'; did you mean title?"),
        ({"id": "a", "condition": _ATOM, "level": "hihg"}, "did you mean high?"),
        ({"id": "a", "condition": {"field": "x", "is": "contain", "value": "y"}}, "did you mean contains?"),
        ({"id": "a", "condition": {"field": "x", "is": "contains"}}, "'contains' has a value"),
        ({"id": "a", "condition": {"field": "x", "is": "contains", "value": 5}}, "takes text, not 5"),
        ({"id": "a", "condition": {"field": "x", "is": "exists", "value": 5}}, "'exists' has no value"),
        ({"id": "a", "condition": {"all": [_ATOM, {"not": [_ATOM]}]}}, "condition.all[1].not: a condition is an obj"),
        ({"id": "a", "condition": {"all": [], "any": []}}, "'all' must be alone"),
        ({"id": "a", "condition": {"field": "x", "is": "regex", "value": "y", "flags": "q"}}, "some of i, m and s"),
        ({"id": "a", "correlation": {"kind": "event_count", "rules": [], "timespan_ms": 1}}, "names no rule"),
        ({"id": "a", "correlation": {"kind": "value_count", "rules": ["b"], "timespan_ms": 1}}, "needs a field"),
        ({"id": "a", "correlation": {"kind": "temporal", "rules": ["b"], "timespan_ms": 0}}, "positive whole number"),
    ],
)
def test_a_mistake_is_named_and_no_valid_text_of_the_schema(rule: dict[str, Any], reason: str) -> None:
    good = {"id": "good", "condition": _ATOM}
    found = parse([RuleText("r.json", f"[{json.dumps(good)},\n{json.dumps(rule)}]")])
    (problem,) = found.problems
    assert reason in problem.reason
    assert (problem.file, problem.line, problem.rule_id) == ("r.json", 2, rule.get("id", ""))
    assert [each.id for each in found.rules] == ["good"]
    jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="the extra json-schema is not installed")
    assert not jsonschema_rs.validator_for(_SCHEMA).is_valid(rule)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"id": "a",\n "condition" 5}', 2, "not JSON"),
        ('[{"id": "a"}\n {"id": "b"}]', 2, "expected ',' or ']'"),
        ('{"id": "a"} {"id": "b"}', 1, "several rules must be a list"),
        ('{"id": "a", "id": "b"}', 1, "'id' is listed twice"),
        ('{"id": NaN}', 1, "NaN is not JSON"),
        ("[" * 100_000, 1, "nested too deeply"),
        ('{"id": "a", "condition": ' + '{"not": ' * 100_000, 1, "nested too deeply"),
        ("", 1, "not JSON"),
    ],
)
def test_text_that_is_no_json_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    (problem,) = parse([RuleText("r.json", text)]).problems
    assert reason in problem.reason
    assert problem.line == line


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(LocalError, match="rule a: inf is a number that JSON does not have"):
        dumps([Rule("a", Atom("x", Kind.EQUALS, float("inf")))])
    with pytest.raises(LocalError, match="rule a: its source has a name twice"):
        dumps([Rule("a", Atom("x", Kind.EXISTS), source=(("k", "v"), ("k", "w")))])
