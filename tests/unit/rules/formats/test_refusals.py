"""Rules that nobody can use: one error each, with the file, the line and the rule, whatever the text holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sigma", reason="the extra sigma is not installed")
pytest.importorskip("lark", reason="the extra sql is not installed")

from rmqio.errors import LocalError
from rmqio.rules import CorrelationKind, CorrelationRule, Rule, RuleSet
from rmqio.rules.engine import compile_rules
from rmqio.rules.errors import RuleError
from rmqio.rules.formats import Mapping, RuleText, base, parse
from rmqio.rules.formats.base import line_and_column, line_with_caret
from rmqio.rules.ir import Atom, Kind

_ID = "5b1f6c8e-2f1c-4c0e-9a41-6b0c8fd0f0aa"
_ANY = Atom("a", Kind.EXISTS)
_MISSPELT: Any = "evnt_count"


def _sigma(*, value: str = "b", condition: str = "sel", more: str = "", rule_id: str = _ID) -> str:
    return (
        f"title: t\nid: {rule_id}\nlogsource: {{category: x}}\ndetection:\n  sel:\n    a: {value}\n"
        f"  condition: {condition}\n{more}"
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[" * 50_000, "exceeded maximum nesting depth"),
        ("[" * 300 + "]" * 300, "it has more than 100 levels"),
        ("&a [*a]", "or a circle"),
        ("2024-13-45", "'2024-13-45' is no timestamp: month must be in 1..12"),
        ("!!bool x", "'x' is no bool"),
        ("!!timestamp x", "'x' is no timestamp"),
        ("1" * 5_000, "is no int: it has too many digits"),
        ("-" + "1" * 5_000, "is no int: it has too many digits"),
        ("1_" * 5_000 + "1", "is no int: it has too many digits"),
        ("{[1, 2]: 3}", "a key is a text or a number"),
        ("!!set [1]", "a key is a text or a number"),
        ("{c: 1, c: 2}", "Duplicate key 'c'"),
        ("!!python/object:os.system x", "could not determine a constructor"),
        ("*nope", "found undefined alias"),
        ('"\\ud800"', "found invalid Unicode"),
    ],
)
def test_yaml_that_has_no_value_is_an_error_of_its_rule(value: str, reason: str) -> None:
    text = f"{_sigma(rule_id=_ID[:-1] + 'b')}---\n{_sigma(value=value)}"
    found = parse([RuleText("r.yml", text)])
    assert [each.id for each in found.rules] == [_ID[:-1] + "b"]
    (problem,) = found.problems
    assert (problem.file, problem.line, problem.rule_id) == ("r.yml", 14, _ID)
    assert reason in problem.reason
    assert "^" in problem.shown


@pytest.mark.parametrize(
    ("text", "line", "rule_id"),
    [
        ("title: [x\n", 2, ""),
        ("id: [x\ntitle: t\n", 2, "t"),
        ('title: "x\nid: y\n', 3, "y"),
        ("id: {a: b\nname: 'n'\n", 2, "n"),
        ("id: a\nlevel: [x\n---\nid: b\n", 3, "a"),  # a list without an end is told where the next document begins
        ("id: a\n---\nid: b\nlevel: [x\n---\nid: c\n", 5, "b"),
        ("id: a\n---\nlevel: 'x\n", 4, ""),
    ],
)
def test_broken_yaml_is_an_error_of_its_rule(text: str, line: int, rule_id: str) -> None:
    problem = parse([RuleText("r.yml", text)]).problems[-1]
    assert "this is not YAML" in problem.reason
    assert (problem.line, problem.rule_id) == (line, rule_id)


def test_a_document_without_a_value_does_not_hide_those_after_it() -> None:
    other = _ID[:-1] + "b"
    text = f"{_sigma(value='!!bool x')}---\n{_sigma(rule_id=other)}---\n{_sigma(value='2024-13-45')}"
    found = parse([RuleText("r.yml", text)])
    assert [each.id for each in found.rules] == [other]
    assert [each.line for each in found.problems] == [6, 22]


@pytest.mark.parametrize(
    ("modifiers", "value", "times", "texts"),
    [
        ("contains|all", "word", 100_001, "100,001"),
        ("windash|contains", "' -a /b -c'", 801, "100,125"),
        ("base64offset|contains", "word", 33_334, "100,002"),
    ],
)
def test_a_rule_of_too_many_texts_is_refused_before_they_are_made(
    modifiers: str, value: str, times: int, texts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr("sigma.rule.detection.SigmaDetectionItem.__post_init__", made.append)
    text = _sigma(value=f"[{f'{value}, ' * times}]").replace(" a: ", f" a|{modifiers}: ")
    (problem,) = parse([RuleText("r.yml", text)]).problems
    assert (problem.line, problem.rule_id) == (1, _ID)
    assert problem.reason == f"its values stand for {texts} texts; one rule can have 100,000: split it"
    assert not made


@pytest.mark.parametrize("count", [300, 50_000])
def test_a_condition_that_is_too_deep_is_shown(count: int) -> None:
    (problem,) = parse([RuleText("r.yml", _sigma(condition="not " * count + "sel"))]).problems
    assert (problem.line, problem.rule_id) == (7, _ID)
    assert problem.reason == "the condition is nested too deeply"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fields: " + "[" * 50_000, r"m.yml:1: this is not YAML: exceeded maximum nesting depth"),
        ("fields:\n  a: " + "[" * 300 + "]" * 300, r"m.yml:2: this is not YAML: it has more than 100 levels"),
        ("sources:\n- category: x\n  when: {a: 2024-13-45}", r"m.yml:3: .* month must be in 1..12"),
        ("fields: {a: !!bool x}", r"m.yml:1: this is not YAML: 'x' is no bool"),
        ("a: b\n---\na: c", r"m.yml has 2 documents; it must have one"),
        ("", r"m.yml is not an object"),
        ("transformations: [{id: x, type: no_such}]", "the pipeline of pySigma is not valid"),
        ("transformations: 5", "the pipeline of pySigma is not valid"),
        ("transformations: [[]]", "the pipeline of pySigma is not valid"),
    ],
)
def test_a_mapping_that_cannot_be_read_is_an_error_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "m.yml").write_text(text)
    with pytest.raises(LocalError, match=reason):
        Mapping.of(tmp_path / "m.yml")


def test_a_pipeline_that_fails_on_a_rule_is_a_problem_of_the_rule(tmp_path: Path) -> None:
    (tmp_path / "m.yml").write_text("transformations: [{id: x, type: field_name_mapping, mapping: 5}]")
    (problem,) = parse([RuleText("r.yml", _sigma())], mapping=Mapping.of(tmp_path / "m.yml")).problems
    assert (problem.rule_id, problem.line) == (_ID, 1)
    assert problem.reason.startswith("the rule is malformed: ")


def _refused(text: str) -> str:
    (problem,) = parse([RuleText("r.sql", f"-- id: x\n{text}")]).problems
    assert (problem.line, problem.rule_id) == (2, "x")
    return problem.reason


def test_conditions_of_sql_may_be_long_but_not_too_deep() -> None:
    for text in ("NOT " * 5_000 + "a = 1", "a = 1 AND " * 2_000 + "a = 1", "(" * 2_000 + "a = 1" + ")" * 2_000):
        assert not parse([RuleText("r.sql", f"-- id: x\n{text}")]).problems
    assert "is nested too deeply" in _refused("NOT (b = 1 AND " * 10_000 + "a = 1" + ")" * 10_000)
    assert "at most 100 levels" in _refused("UPPER(" * 150 + "a" + ")" * 150 + " = 'x'")
    assert "at most 100 levels" in _refused("a = " + "1 + " * 150 + "1")


def test_sql_inside_of_a_rule_is_computed_without_deep_calls() -> None:
    def rule(count: int) -> Rule:
        return Rule("x", Atom(None, Kind.SQL, "NOT " * count + "a = UPPER(b)"))

    assert compile_rules([rule(90)]).match({"a": "X", "b": "x"})
    with pytest.raises(RuleError, match="at most 100 levels of AND, OR and NOT"):
        compile_rules([rule(1_000)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.yml", _sigma(more="level: hihg\n")),
        ("r.sql", "-- id: x\n-- level: hihg\na = 1"),
        ("r.json", json.dumps({"id": "x", "level": "hihg", "condition": {"field": "a", "is": "exists"}})),
    ],
)
def test_an_unknown_level_is_refused_with_the_nearest(name: str, text: str) -> None:
    (problem,) = parse([RuleText(name, text)]).problems
    assert problem.reason.startswith("level: 'hihg' is not one of informational, low")
    assert problem.reason.endswith("; did you mean high?")
    assert problem.line


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule("x", _ANY, level="HIHG"), "rule x: level: 'HIHG' is not one of .*; did you mean high?"),
        (Rule("", _ANY), "its id is ''"),
        (CorrelationRule("c", _MISSPELT, ("x",), 1), "did you mean event_count?"),
        (CorrelationRule("c", CorrelationKind.TEMPORAL, ("x",), 1, operator="gle"), "operator: 'gle' .*; did you mean"),
        (CorrelationRule("c", CorrelationKind.TEMPORAL, ("x",), 0), "timespan_ms is 0"),
        (CorrelationRule("c", CorrelationKind.TEMPORAL, ("x",), 1, count=-1), "count is -1"),
        (
            CorrelationRule("c", CorrelationKind.TEMPORAL, ("x",), 10**15),
            "timespan of 1,000,000,000,000,000 ms is too long",
        ),
        (CorrelationRule("c", CorrelationKind.TEMPORAL, (), 1), "one rule or more"),
        (CorrelationRule("c", CorrelationKind.VALUE_COUNT, ("x",), 1), "value_count needs a field"),
        ("x", "takes rules, not str"),
    ],
)
def test_rules_of_a_program_are_checked_when_the_set_is_made(rule: Any, reason: str) -> None:
    with pytest.raises(LocalError, match=re.sub(r"\?$", r"\\?", reason)):
        RuleSet.of([rule])


def test_a_correlation_of_a_rule_that_the_set_does_not_have_is_refused() -> None:
    failed, many = Rule("failed", _ANY), CorrelationRule("many", CorrelationKind.TEMPORAL, ("faild",), 1)
    with pytest.raises(RuleError, match="takes matches of the rule 'faild', and there is none; did you mean failed"):
        RuleSet.of([failed, many]).load()
    assert RuleSet.of([many]).correlations() == (many,)  # the rules are in another set


@pytest.mark.parametrize(
    ("timespan", "count", "reason"),
    [("999999999d", 2, "the timespan of .* ms is too long"), ("5m", -2, "count is -2; it must be a whole number")],
)
def test_numbers_of_sigmas_correlations_have_bounds(timespan: str, count: int, reason: str) -> None:
    """Beam has no time for the end of such a span: the job would fail on the first match, and not at its start."""
    correlation = (
        f"title: c\nid: {_ID.replace('5', '6')}\ncorrelation:\n  type: event_count\n  rules: [{_ID}]\n"
        f"  timespan: {timespan}\n  condition: {{gte: {count}}}\n"
    )
    (problem,) = base.problems_of(parse([RuleText("a.yml", f"{_sigma()}---\n{correlation}")]))
    assert re.match(reason, problem.reason)
    assert (problem.file, problem.line) == ("a.yml", 9)


@pytest.mark.parametrize("separator", ["", "\n"])
def test_places_in_a_text_of_many_rules_are_found_at_once(separator: str) -> None:
    """Their search must not read the text from its beginning for each rule."""
    count = 20_000
    rule = json.dumps({"id": "r", "condition": {"field": "x", "is": "equals", "value": "y" * 150}}) + f",{separator}"
    text = rule * count
    before = base._line_starts.cache_info().misses
    found = [line_and_column(text, number * len(rule)) for number in range(count)]
    shown = [line_with_caret(text, *each) for each in found]
    assert base._line_starts.cache_info().misses == before + 1, "it is read once"
    assert found[-1] == ((count, 1) if separator else (1, (count - 1) * len(rule) + 1))
    assert {len(each.splitlines()) for each in shown} == {2}
    assert max(map(len, shown)) < 600, "of a long line, a part"


@pytest.mark.parametrize(
    ("line", "column", "shown"),
    [
        ("abc", 2, "  abc\n   ^^"),
        ("abc", 9, "  abc\n     ^"),
        ("\tabc\r", 2, "  \tabc\n  \t^^"),
        ("x" * 900, 1, f"  {'x' * 100}...\n  ^^"),
        ("x" * 900, 900, f"  ...{'x' * 100}\n  {' ' * 102}^"),
        ("x" * 900, 500, f"  ...{'x' * 100}...\n  {' ' * 43}^^"),
    ],
)
def test_the_place_of_a_mistake_is_under_its_line(line: str, column: int, shown: str) -> None:
    assert line_with_caret(f"first\n{line}\nlast", 2, column, 2) == shown


def test_of_a_long_line_the_part_around_the_place_is_shown() -> None:
    items = ", ".join(['{"id": "x"}'] * 500)
    (problem,) = parse([RuleText("r.json", f'{{"rules": [{items}, {{"id" "y"}}, {items}]}}')], "json").problems
    line, carets = problem.shown.split("\n")
    assert len(line) <= 108
    assert line[carets.index("^") - 5 : carets.index("^") + 3] == '"id" "y"'


def test_a_regular_expression_that_re2_refuses_is_no_log_line(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 logs on its own, where the terminal is, and before anything else is configured."""
    text = _sigma().replace("a: b", "a|re|i: foo(?=bar)")
    (problem,) = parse([RuleText("r.yml", text)]).problems
    assert problem.line == 6
    assert problem.reason.endswith("'foo(?=bar)' is invalid: invalid perl operator: (?=")
    assert capfd.readouterr() == ("", "")
