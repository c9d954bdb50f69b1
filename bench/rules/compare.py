"""All sides on the same rules and events. Each side's matches are compared before anything is measured."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.common.tally import BenchError, UnequalWork
from bench.rules import peers
from bench.rules.figures import BATCH, Figure, figure_of, measured
from bench.rules.sides import Run, closures_run, decode_run, matcher_run
from rmqio.rules.ir import Atom, Kind, Rule

NO_MEMORY = "no memory"
_SLOW = 2_000_000
"""Rules times events that a plain side gets."""


class Case(NamedTuple):
    """A case: rules and events, and targets by values."""

    name: str
    rules: Sequence[Rule]
    events: Callable[[int, bool, int], list[bytes]]
    """Makes a count of events: whether all values are distinct, and the number of the first event."""
    targets: dict[str, int]


def compare(case: Case, count: int, repeats: int) -> list[Figure]:
    """Raises `UnequalWork` if sides find different matches, or nothing matches."""
    rules = case.rules
    same, distinct = case.events(count, False, 0), case.events(count, True, 0)
    slow_count = min(count, max(64, _SLOW // len(rules)))
    sides: dict[str, Callable[[], Run]] = {
        "rmqio": lambda: matcher_run(rules),
        NO_MEMORY: lambda: matcher_run(rules, cache_bytes=0),
        "closures": lambda: closures_run(rules, with_re=False),
        "closures with re": lambda: closures_run(rules, with_re=True),
    }
    wanted: list[list[str]] = []
    for bodies in (same[:slow_count], distinct[:slow_count]):
        found = {name: make_side()(bodies) for name, make_side in sides.items()}
        wanted = found["closures"]
        if not any(wanted):
            raise UnequalWork(f"{case.name}: no event matches")
        for name, matches in found.items():
            _equal(case.name, name, matches, wanted)
    matched = sum(map(bool, wanted)) / len(wanted)
    print(
        f"{case.name}: {len(rules):,} rules, {statistics.mean(map(len, same)):.0f} bytes, {matched:.1%} match",
        flush=True,
    )
    figures = []

    def add(side: str, values: str, found: list[float]) -> None:
        target = case.targets.get(values, 0) if side == "rmqio" else 0
        figures.append(figure_of(case.name, len(rules), side, values, found, target))

    add("decode alone", "", measured(decode_run, same, repeats))
    warm = warmed(rules, same)
    add("rmqio", "warm", measured(warm, same, repeats))
    add("rmqio", "cold", measured(warm, same, min(3, repeats), lambda: matcher_run(rules)))
    own = warmed(rules, case.events(2 * count, True, count))
    without = warmed(rules, case.events(2 * count, True, count), cache_bytes=0)
    fresh: list[list[float]] = [[], []]
    for at in range(3 * count, (3 + repeats) * count, count):
        bodies = case.events(count, True, at)
        for side, costs in zip((own, without), fresh, strict=True):
            costs += measured(side, bodies, 1)
    add("rmqio", "distinct", fresh[0])
    add("rmqio", f"distinct, {NO_MEMORY}", fresh[1])
    add("rmqio", NO_MEMORY, measured(warmed(rules, same, cache_bytes=0), same, repeats))
    for name in ("closures", "closures with re"):
        add(name, "", measured(sides[name](), same[:slow_count], min(3, repeats)))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_:
        for peer in _peers(case, Path(folder), distinct):
            open_.enter_context(peer)
            _equal(case.name, peer.name, peer.matches(slow_count), wanted)
            peer.run()  # to warm up
            add(peer.name, "distinct", [peer.run() for _ in range(repeats)])
    return figures


def _peers(case: Case, folder: Path, bodies: list[bytes]) -> Iterator[peers.Peer]:
    makers = [
        lambda: peers.rsigma(folder / "plain", case.rules, bodies, with_index=False),
        lambda: peers.rsigma(folder / "index", case.rules, bodies, with_index=True),
    ]
    if case.name == "few":  # its texts are with case, and it has no other endings than by patterns
        makers.append(lambda: peers.rocketmq_streams(folder / "java", case.rules, bodies))
    for make in makers:
        try:
            yield make()
        except BenchError as error:
            print(f"  left out: {error}", flush=True)


def _equal(case: str, side: str, matches: list[list[str]], wanted: list[list[str]]) -> None:
    for at, (mine, theirs) in enumerate(zip(matches, wanted, strict=True)):
        if sorted(mine) != sorted(theirs):
            raise UnequalWork(f"{case}: {side} finds {mine} in event {at}, and closures {theirs}")


def warmed(rules: Sequence[Rule], bodies: Sequence[bytes], **limits: int) -> Run:
    """A side that has seen the bodies, and has counted how often its conditions match."""
    run = matcher_run(rules, **limits)
    for _ in range(-(-40 * BATCH // len(bodies))):
        measured(run, bodies, 1)
    return run


def hostile(repeats: int) -> list[Figure]:
    """Long lines that almost match."""
    figures = []
    almost = " ".join(f"a{n} b{n} abc1{n % 10}" for n in range(3_000))[:6_000]  # all of a pattern but its end
    line = json.dumps({"x": almost + "a" * 4_000 + "!"}).encode()
    patterns = {
        "3,000 a.*b.*c": [f"a{n}.*b{n}.*c{n}" for n in range(3_000)],
        "3,000 no literals": [
            f"[a-z]{{3}}[0-9]{{{n % 7 + 1}}}[x-z]{{{n % 11 + 1}}}q?[0-5]{{{n % 13 + 1}}}" for n in range(3_000)
        ],
        "(a+)+$": ["(a+)+$", "(a|aa)+$", "(.*a){12}"],
    }
    print("hostile: lines of 10 KB", flush=True)
    for name, texts in patterns.items():
        rules = [Rule(f"h{n}", Atom("x", Kind.REGEX, text)) for n, text in enumerate(texts)]
        found = measured(matcher_run(rules, cache_bytes=0), [line] * 64, repeats)
        figures.append(figure_of("hostile", len(rules), name, "10 KB", found))
    return figures
