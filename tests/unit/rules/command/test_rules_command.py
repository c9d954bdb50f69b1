"""`rmqio rules`: mistakes, costs and matches, on files and on a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="the extra rules is not installed")
pytest.importorskip("lark", reason="the extra sql is not installed")

from rmqio.rules.command.lint import cost_of, literal_length, triggers, warnings_of
from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Place, Rule
from rmqio.rules.ruleset import RuleSet
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker

A = Atom("a", Kind.EQUALS, 1)
B = Atom("b", Kind.CONTAINS, "text")
X = Atom("a", Kind.EQUALS, "xyz")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.cluster.create_topic("events", 2)
        yield broker


@pytest.fixture
def rmqio(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(broker.name_server, capsys, "--timeout_ms", "2000")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sql"
    path.write_text(
        "-- id: large\n-- title: A large order\n-- level: high\namount > 100;\n-- id: new\nLOWER(state) = 'new'"
    )
    return path


# ---- lint -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (Or(()), "it never matches: its condition is empty"),
        (And((A, Or(()))), "it never matches: its condition is empty"),
        (And(()), "it matches every event"),
        (And((A, Not(A))), "it never matches: a equals 1, and not a equals 1"),
        (And((A, Not(Atom("a", Kind.EXISTS)))), "it never matches: a is not there, and a equals 1"),
        (And((A, Atom("a", Kind.EQUALS, 2))), "a equals 1 and a equals 2, unless a is a list"),
        (
            And((Atom("a", Kind.GREATER, 5), B, Atom("a", Kind.LESS, 3))),
            "a is above 5 and below 3, unless it is a list",
        ),
        (And((Atom("a", Kind.GREATER, 5), Atom("a", Kind.LESS, 5))), "a is above 5 and below 5, unless"),
        (And((A, Atom("a", Kind.GREATER, 7))), "a equals 1 and a greater 7, unless a is a list"),
        (And((A, Atom("a", Kind.IS_NULL))), "a equals 1 and a is null, unless a is a list"),
        (And((X, Atom("a", Kind.STARTS_WITH, "y"))), "a equals 'xyz' and a starts with 'y', unless a is a list"),
        (And((X, B, Not(Atom("a", Kind.CONTAINS, "y")))), "it never matches: a equals 'xyz', and not a contains 'y'"),
        (
            And((X, Or((Atom("a", Kind.EQUALS, "x"), Atom("a", Kind.EQUALS, "y"))))),
            "a equals 'xyz' and one of 2 other conditions, unless a is a list",
        ),
        (Or((B, And((A, Not(A))))), "a part of it never matches"),
        (Not(And((A, Not(A)))), "a part of it always matches"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_a_warning(condition: Condition, reason: str) -> None:
    (warning,) = warnings_of([Rule("r", condition, place=Place("f", 3))])
    assert reason in warning.reason
    assert (warning.file, warning.line, warning.rule_id) == ("f", 3, "r")


@pytest.mark.parametrize(
    "condition",
    [
        And((A, Atom("a", Kind.EQUALS, 1.0))),
        And((A, Atom("a", Kind.EQUALS, "1"))),
        And((Atom("a", Kind.EQUALS, "xyz", ignore_case=True), Atom("a", Kind.EQUALS, "XyZ"))),
        And((Atom("a", Kind.EQUALS, "xyz", ignore_case=True), Atom("a", Kind.CONTAINS, "X"))),
        And((Atom("a", Kind.AT_LEAST, 5), Atom("a", Kind.AT_MOST, 5))),
        And((A, Not(Atom("a", Kind.EQUALS, "1.0")))),
        And((A, Or((Atom("a", Kind.EQUALS, 2), B)))),
        And((A, Atom("a", Kind.EXISTS), Not(Atom("a", Kind.IS_NULL)))),
        And((X, Atom("a", Kind.REGEX, "^q"))),
    ],
)
def test_a_condition_that_some_value_meets_is_no_warning(condition: Condition) -> None:
    assert not list(warnings_of([Rule("r", condition)]))


def test_the_order_of_conditions_makes_no_other_rule() -> None:
    rules = [Rule("x", And((A, Or((B, Not(X)))))), Rule("y", And((Or((Not(X), B, B)), A))), Rule("z", Or((A, B, X)))]
    assert [str(each) for each in warnings_of(rules)] == ["rule y: it has the same condition as the rule x"]


def test_equal_conditions_are_a_warning() -> None:
    rules = [Rule("x", And((A, And((B,)))), place=Place("f", 1)), Rule("y", And((A, B)))]
    (warning,) = warnings_of(rules)
    assert str(warning) == "rule y: it has the same condition as the rule x (f:1)"
    assert not list(warnings_of([Rule("x", A), Rule("y", Atom("a", Kind.EQUALS, "1"))]))
    assert not list(warnings_of([Rule("x", And((A, Atom("a", Kind.AT_MOST, 5))))]))


def test_the_rarest_condition_that_must_be_met_is_how_a_rule_is_found() -> None:
    seldom = Atom("b", Kind.EQUALS, "a long and rare text")
    assert triggers(And((B, seldom, Not(A)))) == [seldom]
    assert triggers(Or((A, And((B, seldom))))) == [A, seldom]
    assert triggers(Or((A, Not(B)))) == []
    assert triggers(Not(A)) == []


@pytest.mark.parametrize(
    ("kind", "value", "length"),
    [
        (Kind.CONTAINS, "abc", 3), (Kind.WILDCARD, "a*bcd?e", 3), (Kind.WILDCARD, "*", 0),
        (Kind.REGEX, r"^a.*hello\d", 5),
        (Kind.REGEX, r"[a-z]+\s*", 0), (Kind.REGEX, r"x\.exe$", 5), (Kind.REGEX, "abc|d", 0), (Kind.REGEX, "ab?c", 1),
    ],
)  # fmt: skip
def test_the_text_that_a_pattern_needs(kind: Kind, value: str, length: int) -> None:
    assert literal_length(Atom("a", kind, value)) == length


def test_what_costs_more_is_said() -> None:
    def remarks(condition: Condition) -> str:
        return "\n".join(cost_of(Rule("r", condition)).remarks)

    assert "runs on every event" in remarks(Not(A))
    assert "is confirmed" in remarks(Atom("a", Kind.REGEX, r"foobar(?!x)"))
    assert "no text of 2 characters" in remarks(Atom("a", Kind.WILDCARD, "*x*"))
    assert "computes 1 expression" in remarks(And((A, Atom(None, Kind.SQL, "a + 1 > 2"))))
    assert not remarks(And((A, B)))


# ---- the commands ---------------------------------------------------------------------------------------------------


def test_check_shows_the_line_of_a_mistake_and_warnings(rmqio: Tool, tmp_path: Path, shop: Path) -> None:
    bad = tmp_path / "bad.sql"
    bad.write_text("-- id: x\na > 5 AND LOWR(b) = 'x';\n-- id: y\namount > 100\n")
    out = rmqio("rules", "check", str(shop), str(bad), status=1)
    assert f"{bad}:2: rule x: there is no function LOWR: did you mean 'LOWER'?\n" in out
    assert "  a > 5 AND LOWR(b) = 'x'\n            ^^^^^^^" in out
    assert f"warning: {shop}:1: rule large: it has the same condition as the rule y ({bad}:3)" in out
    assert out.splitlines()[-1] == "3 rules; 1 problem, 1 warning"


@pytest.mark.parametrize("command", [["check"], ["explain"], ["fields"], ["run", "--topic", "events"]])
def test_a_file_that_is_not_there_is_told_alike(
    rmqio: Tool, tmp_path: Path, shop: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for missing in ("nope.yml", "*.yml", "manifest.json"):
        assert not rmqio("rules", command[0], str(shop), str(tmp_path / missing), *command[1:], status=2)
        assert missing in rmqio.err


def test_check_finds_what_only_the_engine_refuses(rmqio: Tool, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"id": "r", "condition": {"field": "a", "is": "regex", "value": "(x"}}')
    assert f"{path}:1: rule r: " in rmqio("rules", "check", str(path), status=1)


def test_check_shows_costs_and_writes_a_manifest(rmqio: Tool, shop: Path) -> None:
    manifest = shop.with_name("manifest.json")
    out = rmqio("rules", "check", str(shop), "--long", "--manifest", str(manifest))
    assert "large      1  1 greater" in out
    assert "new: computes 1 expression " in out
    assert [each.id for each in RuleSet.from_files(manifest).load()] == ["large", "new"]
    found = rmqio.json("rules", "check", str(manifest))
    assert [each["id"] for each in found["rules"]] == ["large", "new"]
    assert found["problems"] == []


def test_a_manifest_has_files_of_filters(rmqio: Tool, tmp_path: Path) -> None:
    pytest.importorskip("sigma", reason="Sigma rules need the extra 'sigma'")
    source = "logsource: {category: process_creation}\n"
    rule = f"title: r\nname: a_rule\n{source}detection: {{sel: {{a: 1}}, condition: sel}}\n"
    (tmp_path / "rule.yml").write_text(rule)
    others = "filter: {rules: [a_rule], mine: {user: me}, condition: not mine}\n"
    (tmp_path / "filter.yml").write_text(f"title: f\n{source}{others}")
    wanted = RuleSet.from_files(tmp_path / "*.yml").load()
    rmqio("rules", "check", str(tmp_path / "*.yml"), "--manifest", str(tmp_path / "manifest.json"))
    found = RuleSet.from_files(tmp_path / "manifest.json").load()
    assert [each.condition for each in found] == [each.condition for each in wanted]


def test_explain_marks_how_a_rule_is_found(rmqio: Tool, tmp_path: Path, shop: Path) -> None:
    path = tmp_path / "r.json"
    condition = {"all": [{"field": "a", "is": "equals", "value": 1},
                         {"not": {"field": "b", "is": "contains", "value": "x", "ignore_case": True}}]}  # fmt: skip
    path.write_text(json.dumps({"id": "r", "condition": condition}))
    lines = rmqio("rules", "explain", str(path), str(shop), "--rule", "r").splitlines()
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "all of",
        "* a equals 1 dictionary",
        "not",
        "b contains 'x' (any case) patterns",
        "b contains 'x' (any case): has no text of 2 characters or more to look for",
    ]
    assert all(len(line) <= 80 for line in lines[2:6])
    rmqio("rules", "explain", str(shop), "--rule", "lrge", status=1)
    assert "there is no rule 'lrge'; did you mean large?" in rmqio.err


@pytest.mark.parametrize("command", [["explain"], ["fields"], ["run", "--topic", "events"]])
def test_several_problems_are_below_each_other(rmqio: Tool, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "a.sql").write_text("-- id: a\nLOWR(b) = 'x';\n-- id: b\nc >")
    rmqio("rules", command[0], str(tmp_path / "a.sql"), *command[1:], status=2)
    first, text, caret, second, *_, last = rmqio.err.splitlines()
    assert first.endswith("a.sql:2: rule a: there is no function LOWR: did you mean 'LOWER'?")
    assert (text.strip(), caret.strip()) == ("LOWR(b) = 'x'", "^" * 7)
    assert "a.sql:4: rule b: the statement is not complete" in second
    assert last == "rmqio: the rules cannot be used: they have 2 problems"


@pytest.mark.parametrize("name", ["a.sql", "a.yml", "a.json"])
def test_check_warns_of_a_file_without_rules(rmqio: Tool, tmp_path: Path, shop: Path, name: str) -> None:
    (tmp_path / name).write_text({"a.sql": "-- large > 100", "a.yml": "# title: x", "a.json": "[]"}[name])
    text = rmqio("rules", "check", str(tmp_path / name), str(shop))
    assert text.splitlines() == [f"warning: {tmp_path / name}: it has no rules", "2 rules; 0 problems, 1 warning"]


def test_fields_lists_what_rules_look_at(rmqio: Tool, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("a = 1 AND b LIKE '%x%'")
    (tmp_path / "b.sql").write_text("a > 1 OR c = b")
    found = rmqio.json("rules", "fields", str(tmp_path / "*.sql"))
    assert [(each["field"], each["rules"]) for each in found["fields"]] == [("a", 2), ("b", 2), ("c", 1)]
    assert "a          2  equals, greater" in rmqio("rules", "fields", str(tmp_path / "*.sql"))


def test_run_prints_matches_and_says_what_is_no_event(rmqio: Tool, broker: FakeBroker, shop: Path) -> None:
    for number, body in enumerate(
        [b'{"amount": 500}', b'{"amount": 5}', b"no json", b'{"state": "NEW", "amount": 101}']
    ):
        broker.cluster.append("events", body, queue_id=number % 2)
    words = ("rules", "run", str(shop), "--topic", "events", "--from", "earliest")
    found = rmqio.lines(*words, "--to_end")
    assert sorted((each["rule"], each["body"]) for each in found) == [
        ("large", '{"amount": 500}'),
        ("large", '{"state": "NEW", "amount": 101}'),
        ("new", '{"state": "NEW", "amount": 101}'),
    ]  # fmt: skip
    assert found[0]["level"] == "high"
    assert "1 message did not decode, or had no JSON object as its body" in rmqio.err
    lines = rmqio(*words, "-n", "1").splitlines()
    assert [line.strip() for line in lines[1:]] == ["A large order", "amount greater 100: 500"]
    assert all(len(line) <= 80 for line in lines)


def test_rules_of_a_topic_run_too(rmqio: Tool, broker: FakeBroker) -> None:
    broker.cluster.create_topic("rules", 1)
    broker.cluster.append("rules", b"amount > 100", keys=["large.sql"])
    broker.cluster.append("events", b'{"amount": 1e999}')  # infinite, which JSON has no word for
    broker.cluster.append("rules", b"LOWR(b) = 'x'", keys=["bad.sql"])
    words = ("rules", "run", "--rules_topic", "rules", "--topic", "events", "--from", "earliest", "--to_end")
    found = rmqio.lines(*words, "--on_bad_rule", "skip")
    assert [(each["rule"], each["atoms"][0]["value"]) for each in found] == [("large", "Infinity")]
    assert "left out: bad.sql:1: rule bad: there is no function LOWR" in rmqio.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["check"], "name the files of the rules"),
        (["check", "x.sql", "--rules_topic", "x"], "name the files of the rules"),
        (["check", "x.sql", "--format", "jsn"], "did you mean json?"),
        (["run", "x.sql"], "--topic is missing"),
        (["check", "x.sql", "--mapping", "/nowhere.yml"], "cannot read the mapping"),
    ],
)
def test_wrong_usage_is_one_line(rmqio: Tool, words: list[str], reason: str) -> None:
    rmqio("rules", *words, status=2)
    assert reason in rmqio.err
