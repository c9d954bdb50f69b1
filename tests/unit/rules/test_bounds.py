"""Hostile rules and events: what they cost is bounded, and a limit is an error that names the rule."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.errors import LocalError
from rmqio.rules.engine import Broken, Engine, Matcher, compile_rules
from rmqio.rules.errors import Limits, RuleError
from rmqio.rules.formats import RuleText, parse
from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Place, Rule
from rmqio.rules.match import regexes
from rmqio.rules.match.atoms import matches, parts_of
from rmqio.rules.match.regexes import has_vectorscan, relaxed, size_of
from tests.helpers.own_process import in_own_process

needs_vectorscan = pytest.mark.skipif(not has_vectorscan(), reason="hyperscan has no wheel here")
ENGINES: tuple[Engine, ...] = ("vectorscan", "plain") if has_vectorscan() else ("plain",)


def rule(atom: Condition, name: str = "r") -> Rule:
    return Rule(name, atom, place=Place("a.yml", 3))


def ids(found: Any) -> list[str]:
    return [hit.rule.id for hit in found]


@pytest.mark.parametrize(
    ("limits", "atoms", "reason"),
    [
        ({"max_rules": 1}, ["a", "b"], "this is one rule more than max_rules, 1"),
        ({"max_atoms": 1}, ["a", "b"], r"more than 1 conditions with this rule \(max_atoms\)"),
        ({"max_pattern_bytes": 3}, ["ab", "abcd"], "equals of 'f' has 4 bytes; max_pattern_bytes is 3"),
        (
            {"max_pattern_parts": 29}, ["regex:((ab){1,4}x){3}", "regex:ab{2,900}"],
            "the patterns of 'f' have 30 parts with 3 of this one, 'ab.2,900.'; max_pattern_parts is 29",
        ),
        (
            {"max_pattern_parts": 4}, ["wildcard:a?b?c", "wildcard:a**?*"],
            "the patterns of 'f' have 5 parts with 3 of this one, 'a...*'; max_pattern_parts is 4",
        ),
    ],
)  # fmt: skip
def test_limits_name_the_rule(limits: dict[str, int], atoms: list[str], reason: str) -> None:
    given = [text.rpartition(":") for text in atoms]
    rules = [rule(Atom("f", Kind(kind or "equals"), value), f"r-{value}") for kind, _, value in given]
    with pytest.raises(RuleError, match=re.escape(f"a.yml:3: rule {rules[-1].id}: ") + reason):
        compile_rules(rules, limits=Limits(**limits))


@needs_vectorscan
@pytest.mark.parametrize("field", ["f", None])
def test_patterns_that_are_too_large_name_the_field_and_the_rule(field: str | None) -> None:
    rules = [
        Rule("small", Atom(field, Kind.CONTAINS, "abc"), place=Place("a.yml", 1)),
        Rule("large", Atom(field, Kind.REGEX, "(foo|bar[a-z]){50,90}x"), place=Place("b.yml", 3)),
    ]
    name = "the field 'f'" if field else "conditions without a field"
    reason = f"b.yml:3: rule large: {name}: [0-9,]+ bytes of compiled patterns; max_database_bytes is 3,000. Of 2 rules"
    with pytest.raises(RuleError, match=reason):
        compile_rules(rules, limits=Limits(max_database_bytes=3_000))


@pytest.mark.parametrize(
    ("atom", "reason"),
    [
        (Atom("f", Kind.WILDCARD, "?*" * 40), "a wildcard of 'f' has 80"),
        (Atom(".".join("a" * 20), Kind.EXISTS), "has 20 names; max_field_names is 16"),
        (Atom("f", Kind.REGEX, "(", flags="x"), "has the flag 'x'; there are i, m and s"),
        (Atom("f", Kind.EQUALS, None), "equals of 'f' needs a value; for null, use is_null"),
        (Atom("f", Kind.LESS, True), "less of 'f' is True; it must be a number or a text"),
        (Atom("f", Kind.CIDR, "10.0.0.0/33"), "cidr of 'f': '10.0.0.0/33' does not appear"),
        (Atom(None, Kind.EXISTS), "exists needs a field"),
        (Atom("", Kind.EQUALS, 1), "'' is not the name of a field"),
        (Atom("f", Kind.FIELD, ""), "a condition on 'f' must name another field"),
        (Atom(None, Kind.SQL, ""), "an expression of SQL must be a text"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(atom: Atom, reason: str) -> None:
    with pytest.raises(RuleError, match=reason) as caught:
        compile_rules([rule(And((Atom("g", Kind.EQUALS, 1), atom)))])
    (problem,) = caught.value.problems
    assert problem[:3] == ("a.yml", 3, "r")


def test_all_problems_come_at_once() -> None:
    bad = Atom("f", Kind.CIDR, "x")
    with pytest.raises(RuleError) as caught:
        compile_rules([rule(bad, "1"), rule(Atom("f", Kind.EQUALS, 1), "2"), rule(bad, "3"), rule(bad, "2")])
    assert [(each.rule_id, each.reason.partition(" ")[0]) for each in caught.value.problems] == [
        ("1", "cidr"), ("3", "cidr"), ("2", "another"),
    ]  # fmt: skip


@needs_vectorscan
@pytest.mark.parametrize("pattern", [r"(a)\1", r"x(?=y)z", r"(?<!a)b", "(", "a{1,40000}"])
def test_what_would_need_backtracking_is_refused(pattern: str) -> None:
    with pytest.raises(RuleError) as caught:
        compile_rules([rule(Atom("f", Kind.REGEX, pattern))])
    reason = f"the regular expression '{pattern}' cannot run without backtracking: "
    assert str(caught.value).startswith(f"a.yml:3: rule r: {reason}")


@pytest.mark.parametrize(
    ("pattern", "scanned", "yes", "no"),
    [
        ("k[a-z0-9]{3,900}z", "k[a-z0-9]{3,}z", "xk" + "a" * 900 + "z", "k" + "a" * 901 + "-z"),
        ("^a.{100,500}b$", "^a.{15,}b$", "a" * 100 + "xb", "a" * 100 + "b"),
        (
            r"(x{2,3}\\{9,99}[]{20}]{30}){2}",
            r"(x{2,3}\\{9,}[]{20}]{15,}){2}",
            ("xx" + "\\" * 9 + "]" * 30) * 2,
            "]" * 60,
        ),
        (r"\Qa{99}\E{1,20}{,40}", r"\Qa{99}\E{1,}\{,40}", "a{99}{,40}", "a" * 99),
        ("((a{1,15}b){1,15}c){2,4}", "((a{1,}b){1,}c){2,4}", "abcaabcabc", "abc"),
        ("(?:[^x]{1,14}y){40}", "(?:[^x]{1,14}y){15,}", "ay" * 40, "ay" * 39),
    ],
)
def test_many_repeats_are_scanned_for_as_a_few_or_more(pattern: str, scanned: str, yes: str, no: str) -> None:
    """Vectorscan takes seconds to compile one such expression, and minutes for thousands."""
    pytest.importorskip("re2", reason="regular expressions need the extra 'rules'")
    assert relaxed(pattern) == scanned
    assert size_of(scanned) <= 256
    for engine in ENGINES:
        matcher = compile_rules([rule(Atom("f", Kind.REGEX, pattern))], engine=engine)
        assert [bool(matcher.match({"f": text})) for text in (yes, no)] == [True, False]


@needs_vectorscan
def test_a_regex_that_is_too_large_is_left_to_re2_or_refused() -> None:
    atom = Atom("f", Kind.REGEX, "(ab|cd){1,900}x")
    for limits in (Limits(), Limits(max_regex_bytes=1_000)):
        assert ids(compile_rules([rule(atom)], limits=limits).match({"f": "abcdx"})) == ["r"]
    with pytest.raises(RuleError, match=r"rule r: the regular expression .*invalid repetition size: \{1,1500\}"):
        compile_rules([rule(Atom("f", Kind.REGEX, "(ab|cd){1,1500}x"))])


def test_expressions_that_make_re_explode_are_linear() -> None:
    """`re` takes minutes for the first one."""
    pytest.importorskip("re2", reason="regular expressions need the extra 'rules'")
    patterns = ["(a+)+$", "(a|aa)+$", "(.*a){12}$", "(x+x+)+y"]
    engines: tuple[Engine, ...] = ("vectorscan", "plain")
    for engine in engines:
        if engine == "vectorscan" and not has_vectorscan():
            continue
        matcher = compile_rules([rule(Atom("f", Kind.REGEX, text), text) for text in patterns], engine=engine)
        assert ids(matcher.match({"f": "a" * 50_000 + "!"})) == []
        assert ids(matcher.match({"f": "a" * 5_000})) == patterns[:3]
        assert ids(matcher.match({"f": "x" * 50_000})) == []


def test_expressions_that_match_the_empty_text_are_met_once_by_each_text() -> None:
    pytest.importorskip("re2", reason="regular expressions need the extra 'rules'")
    patterns = ["a*", "", "(ab)*", "x?|y", "[0-9]*$", "^$"]
    for engine in ENGINES:
        matcher = compile_rules([rule(Atom("f", Kind.REGEX, text), f"p{text}") for text in patterns], engine=engine)
        for text in ("", "z", "ab" * 4_000):
            (found,) = matcher.match_many([json.dumps({"f": text}).encode()])
            assert ids(found) == [f"p{each}" for each in patterns if each != "^$" or not text]


def test_a_wildcard_does_bounded_work() -> None:
    looked_at = 0

    class Counting(str):
        __slots__ = ()

        def startswith(self, *given: Any) -> bool:
            nonlocal looked_at
            looked_at += 1
            return super().startswith(*given)

    text = Counting("ab" * 500)
    assert not matches(parts_of("*a*b" * 8 + "*c"), text)
    assert looked_at <= 32 * 2 * len(text)


@needs_vectorscan
@pytest.mark.parametrize("count", [300, pytest.param(3_000, marks=pytest.mark.slow)])
def test_thousands_of_patterns_on_a_long_line_are_one_scan(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = [f"a{n}.*b{n}.*c{n}" for n in range(count)] + [f"[a-z]{{3}}[0-9]{{{n + 1}}}x" for n in range(5)]
    matcher = compile_rules([rule(Atom("f", Kind.REGEX, text), text) for text in patterns])
    (database,) = matcher._databases.values()
    scans: list[int] = []
    scan = database.scan

    def counted(*given: Any) -> Any:
        scans.append(1)
        return scan(*given)

    monkeypatch.setattr(database, "scan", counted)
    line = "a1 b1 " * 1_500 + "a7 b7 c7 xyz12x"
    assert ids(matcher.match({"f": line})) == [patterns[7], patterns[count + 1]]
    assert len(scans) == 2  # one for the match, one to say which value it was


def test_conditions_may_be_deep() -> None:
    """Deeper than Python recurses, in each step: reduced, numbered, hashed, stored, checked, explained."""
    condition: Condition = Atom("a", Kind.EQUALS, 1)
    for number in range(5_000):
        inner = Atom("b", Kind.EQUALS, number % 7)
        condition = Not(Or((And((condition, Not(inner))), And((inner, Atom("c", Kind.EXISTS))))))
    matcher = compile_rules([rule(condition)])
    again = Matcher.load(matcher.dump())
    assert again.version == matcher.version
    for event in ({"a": 1}, {"a": 1, "b": 3}, {"b": 3, "c": 1}, {}):
        assert ids(matcher.match(event)) == ids(again.match(event))


def test_compiled_rules_of_another_meaning_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule(Atom("a", Kind.EQUALS, "x"))]
    version = compile_rules(rules).version
    with monkeypatch.context() as patched:
        patched.setattr("rmqio.rules.engine.MEANING", 1)
        patched.setattr("rmqio.rules.match.plan.MEANING", 1)
        old = compile_rules(rules)
        raw = old.dump()
    assert old.version != version
    with pytest.raises(LocalError, match=r"they have version 1, and this rmqio reads version 2\. Dump the rules again"):
        Matcher.load(raw)


def test_bodies_that_are_deep_or_no_json_are_errors() -> None:
    matcher = compile_rules([rule(Atom("a", Kind.EQUALS, 1))])
    bodies = [b'{"a":' + b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"", b"null", b"1", b'"x"', b'{"a":1}']
    found = matcher.match_many(bodies)
    assert [type(each) for each in found] == [Broken] * 7 + [list]
    assert isinstance(found[0], Broken)
    assert found[0].reason == "the body is nested too deep"
    assert ids(found[7]) == ["r"]


def test_fields_beside_those_of_the_rules_may_be_anything_but_bad_utf_8() -> None:
    matcher = compile_rules([rule(Atom("a", Kind.EQUALS, 1))])
    assert matcher.is_columnar
    good, bad = matcher.match_many([b'{"a":1,"b":"\xc3\xa9"}', b'{"a":1,"b":"\xff"}'])
    assert ids(good) == ["r"]
    assert bad == Broken("the body is not UTF-8: byte 12")


@pytest.mark.parametrize("body", [b'{"a":"x","z":"\xff"}', '{"a":"é","\xff":'.encode("latin-1"), b'{"a":["x", "y\x80"'])
def test_a_byte_that_is_no_utf_8_is_told_from_the_start_of_the_body(body: bytes) -> None:
    wrong = Broken(f"the body is not UTF-8: byte {next(at for at, byte in enumerate(body) if byte > 127)}")
    by_row = rule(Not(Atom("q", Kind.EXISTS)), "row")
    for rules in ([rule(Atom("a", Kind.EQUALS, "y"))], [rule(Atom("a", Kind.EQUALS, "y")), by_row]):
        matcher = compile_rules(rules)
        assert matcher.is_columnar != (by_row in rules)
        assert matcher.match_many([body]) == [wrong]
        assert matcher.match_many([body, b'{"a":"x"}', body])[::2] == [wrong, wrong]


@in_own_process
def test_a_million_distinct_values_take_no_more_memory_than_allowed() -> None:
    """And the memory of values switches itself off, since it finds nothing."""
    matcher = compile_rules([rule(Atom("a", Kind.CONTAINS, "zz"))], limits=Limits(cache_bytes=1 << 20))
    bodies = [json.dumps({"a": f"value-{n:07}"}).encode() for n in range(512)]
    cache = matcher._tables.lookups["a"].cache
    largest = 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for batch in range(60):
            matcher.find([body.replace(b"value", b"v%d" % batch) for body in bodies])
            cache = matcher._tables.lookups["a"].cache
            largest = max(largest, len(cache))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert largest <= 9_000
    assert grown < 4 << 20
    assert not cache.is_on
    assert len(cache) <= 1


def test_long_values_are_cut_and_not_remembered() -> None:
    matcher = compile_rules([rule(Atom("a", Kind.CONTAINS, "end"))], limits=Limits(max_value_bytes=2_000))
    assert ids(matcher.match({"a": "x" * 1_997 + "end"})) == ["r"]
    assert ids(matcher.match({"a": "x" * 1_998 + "end"})) == []
    assert ids(matcher.match({"a": "é" * 998 + "end"})) == ["r"]
    assert ids(matcher.match({"a": "é" * 999 + "end"})) == []
    assert matcher._tables.budget.used == 0


@pytest.mark.parametrize("rows", [False, True])
def test_long_lists_are_cut_and_what_is_cut_is_counted_once(*, rows: bool) -> None:
    rules = [rule(Atom("a", Kind.CONTAINS, "end"), "a"), rule(Atom("b", Kind.EQUALS, "x"), "b")]
    if rows:
        rules += [rule(Atom("c.d", Kind.CONTAINS, "end"), "c"), rule(Atom(None, Kind.CONTAINS, "any"), "any")]
    matcher = compile_rules(rules, limits=Limits(max_values=3, max_value_bytes=8))
    assert matcher.is_columnar != rows
    events: list[dict[str, Any]] = [
        {"a": [["-"] * 2, "end"], "b": "x"},
        {"a": [["-"] * 2, None, "end"], "b": "x"},
        {"a": "long, end", "b": ["long, long", "x", "long, long!", "y"]},
        {"a": "-", "b": "x", "c": [{"d": "-"}] * 3 + [{"d": "end"}], "e": "long, any"},
        {"a": "-", "c": [{}] * 3 + [{"d": "end"}]},
        {"a": ["-"] * 3 + ["end"]},
    ]
    wanted = [["a", "b"], ["b"], ["b"], ["b"], [], []]
    assert [ids(matcher.match(each)) for each in events] == wanted
    # A field and all of an event are cut by themselves; a text is one, whoever looks at it.
    counts = (3, 10) if rows else (3, 3)
    assert matcher.taken_cuts() == counts
    bodies = [json.dumps(each).encode() for each in events]
    assert [ids(each) for each in matcher.match_many(bodies)] == wanted
    assert [matcher.taken_cuts(), matcher.taken_cuts()] == [counts, (0, 0)]


def test_why_a_list_is_met_is_not_looked_for_value_by_value() -> None:
    """Lists of a hundred thousand values are common."""
    looked_at = 0

    class Counting(set[int]):
        def __contains__(self, number: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return super().__contains__(number)

    deep: Condition = Atom("b", Kind.EXISTS)
    for number in range(30):
        deep = Or((Atom("c", Kind.EQUALS, number), And((deep, Not(Atom("d", Kind.EQUALS, number))))))
    values = tuple(Atom("a", Kind.EQUALS, f"v{n}") for n in range(2_000))
    conditions: tuple[Condition, ...] = (
        Or(values),
        And((Atom("b", Kind.EXISTS), Not(Or(values[:1_900])))),
        And((deep, Or(values))),
    )
    matcher = compile_rules([rule(each, str(number)) for number, each in enumerate(conditions)])
    look = matcher._tables.look
    matcher._tables.look = lambda event: (Counting(look(event)[0]), look(event)[1])  # type: ignore[method-assign]
    found = matcher.match({"a": ["x", "v1950"], "b": 1})
    assert ids(found) == ["0", "1", "2"]
    assert [("a", "equals v1950", "v1950") in hit.atoms for hit in found] == [True, False, True]
    assert looked_at < 200


def test_a_hit_names_a_bounded_number_of_conditions() -> None:
    atoms = tuple(Atom("a", Kind.CONTAINS, text) for text in ("a", "b", "c", "d"))
    (hit,) = compile_rules([rule(And(atoms))], limits=Limits(max_hit_atoms=2)).match({"a": "abcd" * 1_000})
    assert len(hit.atoms) == 2
    assert len(hit.atoms[0][2]) == 256


@needs_vectorscan
@pytest.mark.slow
def test_a_hundred_thousand_literals_are_found() -> None:
    rules = [rule(Atom("a", Kind.EQUALS, f"name-{n}", True), f"e{n}") for n in range(99_990)]
    words = [f"{n * 7919 % 1_000_003:x}-{n:x}" for n in range(5_000)]
    rules += [rule(Or(tuple(Atom("b", Kind.CONTAINS, word) for word in words[n::10])), f"c{n}") for n in range(10)]
    matcher = compile_rules(rules)
    assert ids(matcher.match({"a": "NAME-77777", "b": f"x{words[13]}x"})) == ["e77777", "c3"]
    assert len(matcher.dump()) < 40 << 20


def test_the_classifier_is_bounded() -> None:
    assert regexes.plan_of.cache_info().maxsize == 65_536


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"^\Qa$\E", "a$b"), (r"\Q(^$", "x(^$"), ("^[[:alpha:]$]+$", "a$\n"), ("^[^[:digit:]$]$", "x")],
)
def test_a_dollar_that_is_text_stays_text(pattern: str, text: str) -> None:
    pytest.importorskip("re2", reason="regular expressions need the extra 'rules'")
    for engine in ENGINES:
        matcher = compile_rules([rule(Atom("f", Kind.REGEX, pattern))], engine=engine)
        assert ids(matcher.match({"f": text})) == ["r"]


@pytest.mark.parametrize("field", ["f", None])
@pytest.mark.parametrize("kind", [Kind.CONTAINS, Kind.ENDS_WITH, Kind.STARTS_WITH, Kind.WILDCARD])
def test_a_text_of_signs_may_be_as_long_as_another(kind: Kind, field: str | None) -> None:
    """Each sign is several bytes of an expression, of which Vectorscan takes 16,000."""
    signs = ".!É" * 2_000
    atoms = [Atom(field, kind, f"?{signs}" if kind is Kind.WILDCARD else signs, True), Atom(field, Kind.CONTAINS, "yz")]
    for engine in ENGINES:
        matcher = compile_rules([rule(each, each.kind + "yz" * (each is atoms[1])) for each in atoms], engine=engine)
        text = "x" * (kind is Kind.WILDCARD) + signs.lower()
        assert ids(matcher.match({"f": text})) == [kind]
        assert ids(matcher.match({"f": f"yz{text[:-1]}"})) == ["containsyz"]


RULES = """
title: values of {}
logsource: {product: any}
detection:
  text: {f|contains: a, g|startswith: [x, 'ä'], h: '*b*'}
  more: {f|re: 'a+$', f|cidr: 10.0.0.0/8, f|gte: 3, f|exists: true, g|fieldref: h}
  other: {f.g: null, f|contains|all: [a, b], f: [1, true, '']}
  condition: %s
"""
ODD = [
    None, True, 0, 2**64, 10**400, -0.0, math.nan, math.inf, "", "a", "\ud800", "ß", "10.1.2.3", b"\xff",
    Decimal("NaN"), Decimal("1e400"), Fraction(1, 2),
    dt.datetime.max, [], [[["a"]]], {}, {"": None}, {"g": {"g": []}}, {1: 2}, {1}, (),
    object(), int, 1j, [None, {"g": [None]}],
]  # fmt: skip


def odd_rules() -> list[Rule]:
    conditions = ("1 of them", "all of them", "not text and not more", "text or other")
    found = parse(
        [RuleText("a.yml", "---".join(RULES.replace("{}", str(at)) % each for at, each in enumerate(conditions)))]
    )
    assert not found.problems
    return [*found.rules, rule(Atom("f", Kind.SQL, "f > 1 AND g LIKE '%a'"), "sql")]


def test_whatever_an_event_is_it_is_matched_or_an_error() -> None:
    pytest.importorskip("sigma", reason="Sigma rules need the extra 'sigma'")
    matcher = compile_rules(odd_rules())
    events = [{"f": one, "g": other, "h": one} for one in ODD for other in ODD]
    found, broken = matcher.find_events(events)
    assert found
    assert not found.keys() & broken.keys()
    assert all(isinstance(each, RecursionError) for each in broken.values())
    bodies = [json.dumps(each, default=repr, skipkeys=True).encode() for each in events]
    bodies += [each[:-3] for each in bodies] + [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b'{"f": 1e999}',
        b'{"f": {"f": 1, "f": []}}',
    ]
    found, broken = matcher.find(bodies)
    assert found
    assert not found.keys() & broken.keys()


@pytest.mark.parametrize("fields", [1, 30], ids=["columns", "rows"])
def test_an_event_that_fails_by_a_fault_of_ours_fails_alone(
    fields: int, monkeypatch: pytest.MonkeyPatch, no_internal_errors: list[int]
) -> None:
    matcher = compile_rules([rule(Atom(f"f{at}", Kind("equals"), "x"), f"r{at}") for at in range(fields)])
    assert matcher.is_columnar == (fields == 1)
    check = matcher._checked

    def checked(tables: Any, event: Any, hits: set[int], candidates: Any) -> Any:
        if event["n"] == 1:
            raise KeyError("n")
        return check(tables, event, hits, candidates)

    monkeypatch.setattr(matcher, "_checked", checked)
    found, broken = matcher.find([b'{"f0":"x","n":%d}' % n for n in range(3)])
    assert (sorted(found), {at: str(each) for at, each in broken.items()}) == (
        [0, 2],
        {1: "internal error: KeyError: 'n'"},
    )
    assert no_internal_errors == [1]
    no_internal_errors.clear()
