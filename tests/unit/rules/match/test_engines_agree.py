"""Random rules on random events: every engine finds what the plain meaning of the rules says."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.rules.engine import Engine, Matcher, compile_rules
from rmqio.rules.errors import Limits
from rmqio.rules.ir import FIELD_KINDS, And, Atom, Condition, Kind, Not, Or, Rule
from rmqio.rules.match.regexes import has_vectorscan, plan_of
from tests.helpers.rules.meaning import both_hold, matching
from tests.helpers.rules.regexes import find_by_re

ENGINES: list[Any] = [
    pytest.param("vectorscan", marks=pytest.mark.skipif(not has_vectorscan(), reason="hyperscan has no wheel here")),
    "plain",
]
FIELDS = ("a", "b", "c", "a.b", "c.d", "c.d.e", "x.y")
WORDS = ("", "a", "ab", "AB", "abc", "Straße", "STRASSE", "é", "É", "5", "5.0", "05", "true", "10.1.2.3", "fe80::1",
         "a\nb", "\u017f", "\u212a", "k", "\u0130", "i", "\u03a3\u03a3", "True", "-3",
         "1e3", "a*b", "x\\y", "\x00z", "abab\n", "日本", "𝄞", "\u03c2", "\u1e9e", "\u00b5", "\u0131")  # fmt: skip
NUMBERS = (0, 1, 5, -3, 5.0, 5.5, 1000, 2**63, 1e300)
PATTERNS = ("a", "ab$", "^a", "a.b", "[0-9]+", "a|b", "^$", "b{1,2}a", "(ab)+", r"\d\.\d", "x*", r"a\b", "^.{2}$",
            r"b\z", r"[\w]$", "k", "[^s]", "[a-z]", "\u03c3", "\u03bc+", "\u00df$", "[\u0100-\u0180]", r"\W", "(?m)^$",
            "a(?i)B")  # fmt: skip
WILDCARDS = ("*", "a*", "*b", "*a*", "?", "a?c", "*a*b*", "a\\*b", "??", "*é?", "?*", "", "a**b", "x\\\\y", "*?b")
NETWORKS = ("10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "fe80::/10", "192.168.0.0/16")


def random_atom(drawn: random.Random, with_regexes: bool) -> Atom:
    field: str | None = drawn.choice(FIELDS)
    ignore_case = drawn.random() < 0.4
    kinds = [kind for kind in Kind if kind is not Kind.SQL and (with_regexes or kind is not Kind.REGEX)]
    kind = drawn.choice(kinds)
    if kind in (Kind.EXISTS, Kind.IS_NULL):
        return Atom(field, kind)
    if kind in FIELD_KINDS:
        return Atom(field, kind, drawn.choice(FIELDS), ignore_case)
    if drawn.random() < 0.1:
        field = None
    if kind is Kind.REGEX:
        return Atom(field, kind, drawn.choice(PATTERNS), flags="".join(drawn.sample("is", drawn.randrange(3))))
    if kind is Kind.WILDCARD:
        return Atom(field, kind, drawn.choice(WILDCARDS), ignore_case)
    if kind is Kind.CIDR:
        return Atom(field, kind, drawn.choice(NETWORKS))
    if kind in (Kind.LESS, Kind.AT_MOST, Kind.GREATER, Kind.AT_LEAST):
        return Atom(field, kind, drawn.choice(NUMBERS if drawn.random() < 0.7 else WORDS))
    choices: tuple[Any, ...] = WORDS if drawn.random() < 0.7 else (*NUMBERS, True, False)
    return Atom(field, kind, drawn.choice(choices), ignore_case)


def random_condition(drawn: random.Random, depth: int, with_regexes: bool) -> Condition:
    if depth == 0 or drawn.random() < 0.3:
        return random_atom(drawn, with_regexes)
    if drawn.random() < 0.2:
        return Not(random_condition(drawn, depth - 1, with_regexes))
    members = tuple(random_condition(drawn, depth - 1, with_regexes) for _ in range(drawn.randrange(5)))
    return (And if drawn.random() < 0.5 else Or)(members)


def random_value(drawn: random.Random, depth: int) -> Any:
    if depth and drawn.random() < 0.3:
        if drawn.random() < 0.5:
            return [random_value(drawn, depth - 1) for _ in range(drawn.randrange(3))]
        return random_event(drawn, depth - 1)
    return drawn.choice((*WORDS, *WORDS, *NUMBERS, True, False, None))


def random_event(drawn: random.Random, depth: int = 3) -> dict[str, Any]:
    names = ("a", "b", "c", "d", "e", "x", "y", "a.b", "d.e", "c.d")
    return {name: random_value(drawn, depth) for name in drawn.sample(names, drawn.randrange(6))}


def random_rules(drawn: random.Random, *, with_regexes: bool, depth: int = 3) -> list[Rule]:
    return [Rule(f"r{n}", random_condition(drawn, depth, with_regexes)) for n in range(drawn.randrange(1, 12))]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(40))
def test_hits_are_those_of_the_reference(engine: Engine, seed: int) -> None:
    drawn = random.Random(seed)
    with_regexes = has_re2()
    rules = random_rules(drawn, with_regexes=with_regexes)
    limits = Limits(
        max_value_bytes=drawn.choice((4, 65_536)),
        max_values=drawn.choice((2, 10_000)),
        cache_bytes=drawn.choice((0, 500, 1 << 20)),
    )
    matcher = compile_rules(rules, engine=engine, limits=limits)
    events = [random_event(drawn) for _ in range(60)]
    wanted = [[rule.id for rule in matching(rules, event, limits=limits)] for event in events]
    assert [[hit.rule.id for hit in matcher.match(event)] for event in events] == wanted
    bodies = [json.dumps(event).encode() for event in events]
    assert ids(matcher, bodies) == wanted
    assert ids(matcher, bodies) == wanted  # from the memories of values
    assert ids(Matcher.load(matcher.dump()), bodies) == wanted


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(20))
def test_columns_find_what_rows_find(engine: Engine, seed: int) -> None:
    """Rules on fields without a dot, each with a trigger."""
    drawn = random.Random(seed)
    rules = []
    for number in range(8):
        atoms = [random_atom(drawn, with_regexes=False) for _ in range(3)]
        named = [Atom(atom.field and atom.field[0], atom.kind, _undotted(atom), atom.ignore_case) for atom in atoms]
        condition: Condition = And(tuple(atom if drawn.random() < 0.7 else Not(atom) for atom in named if atom.field))
        trigger = Or(tuple(Atom(drawn.choice("abc"), Kind.EQUALS, word) for word in drawn.sample(WORDS, 12)))
        rules.append(Rule(f"r{number}", And((trigger, condition if number else And(())))))
    matcher = compile_rules(rules, engine=engine)
    assert matcher.is_columnar
    events = [{name: random_value(drawn, 1) for name in drawn.sample("abcxy", 4)} for _ in range(300)]
    wanted = [[rule.id for rule in matching(rules, event)] for event in events]
    assert any(wanted)
    assert ids(matcher, [json.dumps(event).encode() for event in events]) == wanted


def _undotted(atom: Atom) -> Any:
    return atom.value[0] if atom.kind in FIELD_KINDS and isinstance(atom.value, str) else atom.value


def test_triggers_chosen_by_counts_find_the_same() -> None:
    drawn = random.Random(1)
    rules = random_rules(drawn, with_regexes=False)
    matcher = compile_rules(rules)
    bodies = [json.dumps(random_event(drawn)).encode() for _ in range(64)]
    wanted = ids(matcher, bodies)
    for _ in range(40):  # the counts end after 512 events, of which 16 are of a batch
        assert ids(matcher, bodies) == wanted


def ids(matcher: Matcher, bodies: list[bytes]) -> list[list[str]]:
    found = matcher.match_many(bodies)
    return [[hit.rule.id for hit in each] for each in found if isinstance(each, list)]


def has_re2() -> bool:
    try:
        import re2  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", [Decimal(200), Decimal("200.00"), Fraction(200), 200, 200.0, "200"])
def test_all_kinds_of_numbers_compare(engine: Engine, value: Any) -> None:
    rules = [
        Rule("above", Atom("a", Kind.GREATER, 100)),
        Rule("most", Atom("a", Kind.AT_MOST, 200.0)),
        Rule("equal", Atom("a", Kind.EQUALS, 200)),
        Rule("below", Atom("a", Kind.LESS, 200)),
    ]
    wanted = ["above", "most", "equal"]
    assert [each.id for each in rules if matching([each], {"a": value})] == wanted
    found = compile_rules(rules, engine=engine).match({"a": value})
    assert [hit.rule.id for hit in found] == wanted


@pytest.mark.parametrize("engine", ENGINES)
def test_a_condition_and_its_opposite_find_nothing_together_and_one_of_them_all(engine: Engine) -> None:
    a, b = Atom("a", Kind.EQUALS, "x"), Atom("b", Kind.EQUALS, "x")
    both, either = [And((a, Not(a))), And((a, b, Not(a)))], [Or((a, Not(a))), Or((b, a, Not(a)))]
    conditions: list[Condition] = [*both, *either, Not(Not(a))]
    rules = [Rule(f"r{number}", condition) for number, condition in enumerate(conditions)]
    matcher = compile_rules(rules, engine=engine)
    for event, wanted in (({}, "r2 r3"), ({"a": "x"}, "r2 r3 r4"), ({"b": "x"}, "r2 r3"), ({"a": "y"}, "r2 r3")):
        assert [hit.rule.id for hit in matcher.match(event)] == wanted.split()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(20))
def test_a_joined_column_finds_what_rows_find(engine: Engine, seed: int) -> None:
    """Texts that are looked through at once: without a memory, and nothing but texts in a field."""
    drawn = random.Random(seed)
    kinds = (Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.EQUALS, Kind.WILDCARD)
    words = [word for word in (*WORDS, *WILDCARDS) if word] if drawn.random() < 0.9 else list(WORDS)
    rules = [
        Rule(f"r{number}", Atom(drawn.choice("abc"), drawn.choice(kinds), drawn.choice(words), drawn.random() < 0.5))
        for number in range(drawn.randrange(1, 9))
    ]
    matcher = compile_rules(rules, engine=engine, limits=Limits(cache_bytes=0, max_value_bytes=drawn.choice((8, 4096))))
    assert matcher.is_columnar
    letters = ("a", "b", "B", "\x00", "z", " ", *(WORDS if drawn.random() < 0.3 else ()))
    events = [
        {name: "".join(drawn.choices(letters, k=drawn.randrange(6))) for name in "abc"}
        for _ in range(drawn.choice((2, 16, 100)))
    ]
    wanted = [[rule.id for rule in matching(rules, event, limits=matcher.limits)] for event in events]
    assert ids(matcher, [json.dumps(event).encode() for event in events]) == wanted


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(20))
def test_keywords_of_an_event_are_found_at_once(engine: Engine, seed: int) -> None:
    """Conditions without a field, on events of many values."""
    drawn = random.Random(seed)
    kinds = (Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.EQUALS, Kind.WILDCARD)
    rules = [
        Rule(f"r{number}", Atom(None, drawn.choice(kinds), drawn.choice((*WORDS, *WILDCARDS, 5)), drawn.random() < 0.5))
        for number in range(drawn.randrange(1, 9))
    ]
    matcher = compile_rules(rules, engine=engine)
    letters = ("a", "b", "B", "\x00", "z", " ", *(WORDS if drawn.random() < 0.3 else ()))
    events = [
        {f"f{n}": drawn.choice(("".join(drawn.choices(letters, k=4)), 5, [None, "ab"], 5.5, True)) for n in range(30)}
        for _ in range(20)
    ]
    wanted = [[rule.id for rule in matching(rules, event)] for event in events]
    assert ids(matcher, [json.dumps(event).encode() for event in events]) == wanted


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(12))
def test_what_ends_with_the_text_is_found(engine: Engine, seed: int) -> None:
    """Texts of 17 bytes and more, whose last byte ends a match: Vectorscan overlooks some of them."""
    drawn = random.Random(seed)
    atoms = []
    for _ in range(drawn.choice((2, 3, 4, 8, 30))):
        text = "".join(drawn.choices("ab*", k=drawn.randrange(1, 7)))
        kind = drawn.choice((Kind.ENDS_WITH, Kind.CONTAINS, Kind.WILDCARD, Kind.REGEX if has_re2() else Kind.ENDS_WITH))
        value = {
            Kind.WILDCARD: f"*x*{text[0]}?{text[-1]}",
            Kind.REGEX: re.escape(text) + drawn.choice(("", "$", "[ab]$")),
        }
        atoms.append(Atom("x", kind, value.get(kind, text), drawn.random() < 0.3))
    rules = [Rule(f"r{number}", atom) for number, atom in enumerate(atoms)]
    matcher = compile_rules(rules, engine=engine, limits=Limits(cache_bytes=0))
    ends = [str(atom.value).replace("\\", "").replace("$", "").replace("?", "b") for atom in atoms]
    events = [
        {
            "x": "".join(drawn.choices("xyz", k=drawn.randrange(90)))
            + drawn.choice((*ends, "b"))
            + drawn.choice(("", "\n"))
        }
        for _ in range(400)
    ]
    wanted = [[rule.id for rule in matching(rules, event)] for event in events]
    assert [[hit.rule.id for hit in matcher.match(event)] for event in events] == wanted
    assert ids(matcher, [json.dumps(event).encode() for event in events]) == wanted


LINES = ("(?m)a$", "(?m:a$)b|c$", "(?m)^a", "a$", "(a$)", "(?i)A$", "(?-m)a$", "x|(?m)a$", "(?m)^$", "[$]a", r"\$a",
         r"a\z")  # fmt: skip


@pytest.mark.skipif(not has_vectorscan(), reason="hyperscan has no wheel here")
@pytest.mark.parametrize("flags", ["", "m"])
@pytest.mark.parametrize("pattern", LINES)
def test_lines_mean_the_same_to_both_engines_and_to_re(pattern: str, flags: str) -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed")
    rules = [Rule("r", Atom("f", Kind.REGEX, pattern, flags=flags))]
    engines = [compile_rules(rules, engine=engine) for engine in ("vectorscan", "plain")]
    for text in ("a\nb", "a\n", "b\na\n", "xa", "c\nz", "a", "b\n", "$a\n", "A\nx", "", "\n", "a\n\n"):
        wanted = find_by_re(pattern, flags, text)
        assert [bool(engine.match({"f": text})) for engine in engines] == [wanted, wanted], text


@pytest.mark.parametrize("engine", ENGINES)
def test_a_huge_number_is_infinite_wherever_it_stands(engine: Engine) -> None:
    rules = [Rule("large", Atom("a", Kind.GREATER, 10)), Rule("x", Atom("b", Kind.EQUALS, "x"))]
    matcher = compile_rules(rules, engine=engine)
    assert matcher.is_columnar
    numbers = [b"1e400", b"-1e400", b"1" * 5_000, b"9" * 400, b"9" * 400 + b".5"]
    bodies = [b'{"%s": %s, "b": "x"}' % (name, number) for name in (b"a", b"unread") for number in numbers]
    wanted = [["large", "x"], ["x"], ["large", "x"], ["large", "x"], ["large", "x"], *[["x"]] * 5]
    assert ids(matcher, bodies) == wanted
    assert [ids(matcher, [body])[0] for body in bodies] == wanted  # by rows
    assert ids(compile_rules([*rules, Rule("no", Atom("c", Kind.EXISTS))], engine=engine), bodies) == wanted


@pytest.mark.parametrize(
    ("pattern", "flags", "matches"),
    [("a.*b", "", [True, False]), ("a.*b", "s", [True, True]), ("(?s)a.*b", "", [True, True]), ("a.b", "", [False] * 2),
     ("a[^x]b", "", [False, True]), ("(?-s:a.*b)", "s", [True, False])],
)  # fmt: skip
def test_a_dot_is_no_newline_although_the_scan_finds_it(pattern: str, flags: str, matches: list[bool]) -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed")
    atom = Atom("a", Kind.REGEX, pattern, flags=flags)
    assert [both_hold(atom, {"a": text}) for text in ("a--b", "a\nb")] == matches


def test_dots_of_the_scan_find_newlines() -> None:
    """Vectorscan takes several times as long for expressions whose dots stop at a newline."""
    pytest.importorskip("re2", reason="google-re2 is not installed")
    pytest.importorskip("hyperscan", reason="hyperscan is not installed")
    assert [plan_of("a.*b.*c", flags, 1 << 20, with_vectorscan=True) for flags in ("", "s")] == [
        plan_of("a.*b.*c", "ms", 1 << 20, with_vectorscan=True)
    ] * 2
