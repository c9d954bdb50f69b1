"""Rules: `Matcher` beside the same rules as plain Python closures and with `re`, in one process on one core.

python -m bench.rules [--cases few,sigma,thousand,growth,hostile] [--repeats 5] [--json FILE]

`few`: 41 rules on events of about 300 bytes, of which 1 % match. `sigma`: 3,780 rules like Sigma's, which share their
fields, on events of 1.6 KB. `thousand`: 1,000 of these. `growth`: 10 to 10,000 of these, for the cost of a rule.
`hostile`: lines of 10 KB beside 3,000 patterns `a.*b.*c`, and patterns without literals.

Decoding is part of each figure; `decode` alone is a line of its own. Values are `distinct` (no value of the fields with
patterns comes twice), `cold` (a fresh matcher) or `warm` (a matcher that has seen the same values). Every engine's
matches are compared before anything is measured; unequal ones are an error.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.tally import UnequalWork
from rmqio.rules.engine import compile_rules
from rmqio.rules.ir import And, Atom, Condition, Kind, Not, Or, Rule

BATCH = 512
Run = Callable[[Sequence[bytes]], list[list[str]]]


class Figure(NamedTuple):
    """Microseconds of CPU a message: the median of the repeats, the least and the most."""

    case: str
    side: str
    values: str
    median: float
    least: float
    most: float
    rules: int


# ---- rules and events ------------------------------------------------------------------------------------------------

_SYLLABLES = (
    "ba",
    "co",
    "da",
    "fe",
    "gi",
    "ho",
    "ju",
    "ka",
    "lo",
    "mi",
    "na",
    "or",
    "pe",
    "qu",
    "ro",
    "sa",
    "tu",
    "ve",
)
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


def few_events(count: int, *, distinct: bool) -> list[bytes]:
    """About 300 bytes; 1 % have the code of a rule. `distinct`: each text once."""
    drawn = random.Random(7)
    texts = [" ".join(word(drawn) for _ in range(9)) for _ in range(500)]
    events = []
    for number in range(count):
        text = drawn.choice(texts)
        event = {
            "id": number,
            "host": f"node-{drawn.randrange(40):02}.example",
            "code": f"E{drawn.randrange(41):03}" if drawn.random() < 0.012 else f"I{drawn.randrange(200):03}",
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


def sigma_events(count: int, rules: Sequence[Rule], *, distinct: bool) -> list[bytes]:
    """About 1.6 KB. Every fiftieth has what a rule looks for."""
    drawn = random.Random(9)
    images = [f"C:\\Windows\\System32\\{word(drawn)}{number}.exe" for number in range(400)]
    lines = [" ".join(word(drawn) for _ in range(30)) for _ in range(2_000)]
    events = []
    for number in range(count):
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
            event[name] = drawn.choice(lines)[:18]
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


# ---- the sides -------------------------------------------------------------------------------------------------------


def matcher_run(rules: Sequence[Rule], engine: Any = "auto", **limits: int) -> Run:
    from rmqio.rules.limits import Limits

    matcher = compile_rules(rules, engine=engine, limits=Limits(**limits))

    def run(bodies: Sequence[bytes]) -> list[list[str]]:
        found, _ = matcher.find(bodies)
        return [[hit.rule.id for hit in found[at]] if at in found else [] for at in range(len(bodies))]

    return run


def closures_run(rules: Sequence[Rule], *, with_re: bool) -> Run:
    """Each rule a closure over the event, as one would write it; with `re`, its texts are one expression."""
    tests = [(rule.id, _closure(rule.condition, with_re=with_re)) for rule in rules]
    decode = msgspec.json.decode

    def run(bodies: Sequence[bytes]) -> list[list[str]]:
        found = []
        for body in bodies:
            event = decode(body)
            found.append([rule_id for rule_id, test in tests if test(event)])
        return found

    return run


def _closure(condition: Condition, *, with_re: bool) -> Callable[[dict[str, Any]], bool]:
    if isinstance(condition, Atom):
        return _atom_closure(condition)
    if isinstance(condition, Not):
        inner = _closure(condition.condition, with_re=with_re)
        return lambda event: not inner(event)
    if with_re and isinstance(condition, Or) and (joined := _joined(condition)) is not None:
        return joined
    members = [_closure(each, with_re=with_re) for each in condition.conditions]
    if isinstance(condition, And):
        return lambda event: all(member(event) for member in members)
    return lambda event: any(member(event) for member in members)


def _joined(condition: Or) -> Callable[[dict[str, Any]], bool] | None:
    atoms = [each for each in condition.conditions if isinstance(each, Atom) and isinstance(each.value, str)]
    if len(atoms) < len(condition.conditions) or len({atom.field for atom in atoms}) != 1:
        return None
    ends = {Kind.CONTAINS: "{}", Kind.STARTS_WITH: r"\A{}", Kind.ENDS_WITH: r"{}\Z"}
    if any(atom.kind not in ends for atom in atoms):
        return None
    pattern = "|".join(ends[atom.kind].format(re.escape(str(atom.value))) for atom in atoms)
    search = re.compile(pattern, re.IGNORECASE if atoms[0].ignore_case else 0).search
    name = str(atoms[0].field)
    return lambda event: isinstance(text := event.get(name), str) and search(text) is not None


def _atom_closure(atom: Atom) -> Callable[[dict[str, Any]], bool]:
    name, wanted = str(atom.field), atom.value
    if atom.kind is Kind.REGEX:
        search = re.compile(str(wanted), re.IGNORECASE).search
        return lambda event: isinstance(text := event.get(name), str) and search(text) is not None
    if not isinstance(wanted, str):
        if atom.kind is Kind.GREATER:
            return lambda event: isinstance(value := event.get(name), int) and value > wanted  # type: ignore[operator]
        return lambda event: event.get(name) == wanted
    if atom.ignore_case:
        wanted = wanted.lower()
    test = {
        Kind.CONTAINS: str.__contains__, Kind.STARTS_WITH: str.startswith, Kind.ENDS_WITH: str.endswith,
        Kind.EQUALS: str.__eq__,
    }[atom.kind]  # fmt: skip
    if atom.ignore_case:
        return lambda event: isinstance(text := event.get(name), str) and test(text.lower(), wanted)
    return lambda event: isinstance(text := event.get(name), str) and test(text, wanted)


def decode_run(bodies: Sequence[bytes]) -> list[list[str]]:
    decode = msgspec.json.decode
    for body in bodies:
        decode(body)
    return []


# ---- measuring -------------------------------------------------------------------------------------------------------


def measured(run: Run, bodies: Sequence[bytes], repeats: int, fresh: Callable[[], Run] | None = None) -> list[float]:
    """Microseconds of CPU a message of each repeat. `fresh`: a new side for each, outside of the time."""
    found = []
    for _ in range(repeats):
        side = run if fresh is None else fresh()
        begun = time.process_time()
        for at in range(0, len(bodies), BATCH):
            side(bodies[at : at + BATCH])
        found.append((time.process_time() - begun) * 1e6 / len(bodies))
    return found


def warmed(rules: Sequence[Rule], bodies: Sequence[bytes], **limits: int) -> Run:
    """A side that has seen the bodies, and has counted how often its conditions match."""
    run = matcher_run(rules, **limits)
    for _ in range(-(-40 * BATCH // len(bodies))):
        measured(run, bodies, 1)
    return run


def compare(case: str, rules: Sequence[Rule], make: Callable[[int, bool], list[bytes]], count: int, repeats: int,
            slow_count: int) -> list[Figure]:  # fmt: skip
    """All sides on the same bodies; each side's matches first."""
    figures: list[Figure] = []
    same, distinct = make(count, False), make(count, True)
    sides: dict[str, Callable[[], Run]] = {
        "rmqio": lambda: matcher_run(rules),
        "rmqio, no memory": lambda: matcher_run(rules, cache_bytes=0),
        "closures": lambda: closures_run(rules, with_re=False),
        "closures with re": lambda: closures_run(rules, with_re=True),
    }
    for bodies in (same[:slow_count], distinct[:slow_count]):
        found = {name: make_side()(bodies) for name, make_side in sides.items()}
        wanted = found["closures"]
        if not any(wanted):
            raise UnequalWork(f"{case}: no event matches")
        for name, matches in found.items():
            if matches != wanted:
                raise UnequalWork(f"{case}: {name} finds other matches than closures")
    matched = sum(bool(each) for each in wanted) / len(wanted)
    print(
        f"{case}: {len(rules)} rules, {statistics.mean(map(len, same)):.0f} bytes, {matched:.1%} of events match",
        flush=True,
    )

    def add(side: str, values: str, found: list[float]) -> None:
        figure = Figure(case, side, values, statistics.median(found), min(found), max(found), len(rules))
        figures.append(figure)
        print(f"  {side:<18} {values:<9} {figure.median:9.2f} us ({figure.least:.2f} to {figure.most:.2f}) "
              f"{1e6 / figure.median:12,.0f}/s", flush=True)  # fmt: skip

    add("decode alone", "", measured(decode_run, same, repeats))
    warm = warmed(rules, same)
    add("rmqio", "warm", measured(warm, same, repeats))
    add("rmqio", "cold", measured(warm, same, min(3, repeats), lambda: matcher_run(rules)))
    own = warmed(rules, same)
    add("rmqio", "distinct", measured(own, distinct, repeats))
    off = warmed(rules, same, cache_bytes=0)
    add("rmqio, no memory", "", measured(off, same, repeats))
    for name in ("closures", "closures with re"):
        add(name, "", measured(sides[name](), same[:slow_count], min(3, repeats)))
    return figures


def hostile(repeats: int) -> list[Figure]:
    """Long lines that almost match."""
    figures = []
    line = json.dumps({"x": "ab" * 5_000}).encode()
    patterns = {
        "3,000 a.*b.*c": [f"a{n}.*b{n}.*c{n}" for n in range(3_000)],
        "3,000 without literals": [
            f"[a-z]{{3}}[0-9]{{{n % 7 + 1}}}[x-z]{{{n % 11 + 1}}}q?[0-5]{{{n % 13 + 1}}}" for n in range(3_000)
        ],
        "(a+)+$": ["(a+)+$", "(a|aa)+$", "(.*a){12}"],
    }
    for name, texts in patterns.items():
        rules = [Rule(f"h{n}", Atom("x", Kind.REGEX, text)) for n, text in enumerate(texts)]
        found = measured(matcher_run(rules, cache_bytes=0), [line] * 64, repeats)
        figures.append(Figure("hostile", name, "10 KB", statistics.median(found), min(found), max(found), len(rules)))
        print(f"  {name:<26} {figures[-1].median:9.0f} us a line of 10 KB", flush=True)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rules", description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--cases", default="few,sigma,thousand,growth,hostile")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_480, help="events of each case. Default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    figures: list[Figure] = []
    count = given.messages
    for case in given.cases.split(","):
        if case == "few":
            figures += compare(case, few_rules(), lambda n, d: few_events(n, distinct=d), count, given.repeats, count)
        elif case in ("sigma", "thousand", "growth"):
            for size in {"sigma": (3_780,), "thousand": (1_000,), "growth": (10, 100, 1_000, 3_000, 10_000)}[case]:
                rules = sigma_rules(size)
                make = lambda n, d, rules=rules: sigma_events(n, rules, distinct=d)  # noqa: E731
                figures += compare(case, rules, make, count, given.repeats, 512)
        elif case == "hostile":
            figures += hostile(given.repeats)
        else:
            parser.error(f"no such case: {case}")
    if given.json:
        given.json.write_text(json.dumps([each._asdict() for each in figures], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
