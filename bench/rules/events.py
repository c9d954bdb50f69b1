"""Rules and events that benchmarks make."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Rule, atoms

_SYLLABLES = [first + last for first, last in zip("bcdfghjklmnoprstv", "aoaeiouaaioreuaue", strict=True)]
_PROCESS_FIELDS = ("Image", "ParentImage", "CommandLine", "OriginalFileName", "TargetFilename", "TargetObject", "User")
_OTHER_FIELDS = tuple(f"Field{number}" for number in range(22))


def word(drawn: random.Random, least: int = 2, most: int = 5) -> str:
    return "".join(drawn.choice(_SYLLABLES) for _ in range(drawn.randint(least, most)))


def few_rules() -> list[Rule]:
    """41 rules: a third on a code, a third on a text, a third on both and a number."""
    drawn = random.Random(41)
    rules = []
    for number in range(41):
        code = Atom("code", Kind.EQUALS, f"E{number:03}")
        text = Atom("text", Kind.CONTAINS, f"{word(drawn, 4, 6)}!")
        conditions: tuple[Condition, ...] = ((code,), (text,), (code, Or((text, Atom("ms", Kind.GREATER, 500)))))[
            number % 3
        ]
        rules.append(Rule(f"r{number}", And((*conditions, Not(Atom("host", Kind.STARTS_WITH, "test-"))))))
    return rules


def few_events(count: int, distinct: bool, start: int = 0) -> list[bytes]:
    """About 300 bytes; 1 % have the code of a rule. `distinct`: each text once, also in those of another start."""
    drawn = random.Random(7 + start)
    texts = [" ".join(word(drawn) for _ in range(9)) for _ in range(500)]
    wanted = [str(atom.value) for rule in few_rules() for atom in atoms(rule.condition) if atom.field == "text"]
    events = []
    for number in range(start, start + count):
        text = drawn.choice(texts)
        if number % 1_000 == 7:
            text += drawn.choice(wanted)
        event = {
            "id": number,
            "host": f"node-{drawn.randrange(40):02}.example",
            "code": f"E{drawn.randrange(41):03}" if drawn.random() < 0.017 else f"I{drawn.randrange(200):03}",
            "ms": drawn.randrange(1000),
            "text": f"{text} {number:x}" if distinct else text,
            "user": f"u{drawn.randrange(300)}",
            "path": f"/api/{word(drawn)}/{word(drawn)}",
            "trace": f"{drawn.getrandbits(128):032x}",
            "agent": "client/1.4 (linux; x86_64)",
        }
        events.append(json.dumps(event).encode())
    return events


def sigma_rules(count: int) -> list[Rule]:
    """Like Sigma's for processes: a log source, images that end with names, parts of command lines, exceptions."""
    drawn = random.Random(3780)
    rules = []
    for number in range(count):
        field = drawn.choice(_PROCESS_FIELDS)
        selections: list[Condition] = [Atom("EventID", Kind.EQUALS, drawn.choice((1, 1, 1, 11, 13, 3, 7)))]
        names = tuple(
            Atom("Image", Kind.ENDS_WITH, f"\\{word(drawn)}{number % 97}.exe", True) for _ in range(drawn.randint(1, 4))
        )
        kind = drawn.choice((Kind.CONTAINS, Kind.CONTAINS, Kind.CONTAINS, Kind.ENDS_WITH, Kind.STARTS_WITH))
        parts = tuple(Atom(field, kind, f"{word(drawn, 3, 6)}{number % 89}", True) for _ in range(drawn.randint(1, 8)))
        selections.append(Or(names) if drawn.random() < 0.6 else Or(parts))
        selections.append(And(parts[:3]) if drawn.random() < 0.5 else Or(parts))
        if drawn.random() < 0.05:
            selections.append(
                Atom("CommandLine", Kind.REGEX, rf"-{word(drawn)}\s+[a-z0-9]{{3,9}}\.(exe|dll)", True, "i")
            )
        if drawn.random() < 0.4:
            selections.append(Not(Atom("ParentImage", Kind.ENDS_WITH, f"\\{word(drawn)}.exe", True)))
        if drawn.random() < 0.2:
            other = drawn.choice(_OTHER_FIELDS)
            selections.append(Not(Atom(other, Kind.EQUALS, word(drawn), True)))
        rules.append(Rule(f"s{number}", And(tuple(selections)), level=drawn.choice(("low", "medium", "high"))))
    return rules


def sigma_events(rules: Sequence[Rule], count: int, distinct: bool, start: int = 0) -> list[bytes]:
    """About 1.6 KB. Every fiftieth has what a rule looks for."""
    drawn = random.Random(9 + start)
    images = [f"C:\\Windows\\System32\\{word(drawn)}{number}.exe" for number in range(400)]
    lines = [" ".join(word(drawn) for _ in range(30)) for _ in range(2_000)]
    events = []
    for number in range(start, start + count):
        unique = f" {number:x}" if distinct else ""
        event: dict[str, Any] = {
            "EventID": drawn.choice((1, 1, 3, 7, 11, 13)),
            "Image": drawn.choice(images)[:-4] + (f"{number:x}.exe" if distinct else ".exe"),
            "ParentImage": drawn.choice(images)[:-4] + (f"{number:x}.exe" if distinct else ".exe"),
            "CommandLine": drawn.choice(lines) + unique,
            "OriginalFileName": drawn.choice(images)[20:] + unique,
            "TargetFilename": f"C:\\Users\\{word(drawn)}\\{drawn.choice(lines)[:40]}" + unique,
            "TargetObject": f"HKLM\\Software\\{drawn.choice(lines)[:60]}" + unique,
            "User": f"DOMAIN\\user{drawn.randrange(500)}" + unique,
        }
        if number % 50 == 0:
            wanted = [
                each for each in _atoms(drawn.choice(rules)) if each.field in event and each.kind is not Kind.REGEX
            ]
            for atom in wanted:
                if isinstance(atom.value, str):
                    event[str(atom.field)] = f"{atom.value}{event[str(atom.field)]}{atom.value}"
                elif atom.kind is Kind.EQUALS:
                    event[str(atom.field)] = atom.value
        for name in _OTHER_FIELDS:
            event[name] = drawn.choice(lines)[:30]
        events.append(json.dumps(event).encode())
    return events


def _atoms(rule: Rule) -> list[Atom]:
    assert isinstance(rule.condition, And)
    return [atom for each in rule.condition.conditions if isinstance(each, (Atom, And, Or)) for atom in _positive(each)]


def _positive(condition: Condition) -> list[Atom]:
    if isinstance(condition, Atom):
        return [condition]
    assert isinstance(condition, (And, Or))
    members = condition.conditions if isinstance(condition, And) else condition.conditions[:1]
    return [each for each in members if isinstance(each, Atom)]
