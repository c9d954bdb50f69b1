"""Rules: the engine beside plain Python, `re`, rsigma (Rust) and the rules of RocketMQ Streams (Java), on one core.

    python -m bench.rules [--cases few,sigma,thousand,growth,hostile,topics] [--repeats 5] [--json FILE]
        [--markdown FILE]

`few`: 41 rules on events of about 300 bytes, of which 1 % match. `sigma`: 3,780 rules like Sigma's, which share their
fields, on events of 1.6 KB. `thousand`: 1,000 of these. `growth`: 10 to 10,000 of these, for the cost of a rule.
`hostile`: lines of 10 KB beside 3,000 patterns `a.*b.*c`, and patterns without literals. `topics`: topic to topic
with 41 rules, beside the same pipeline that only copies.

Figures are CPU of one core a message, and decoding is part of each; `decode alone` is a line of its own. Values are
`distinct` (no value of the fields with patterns comes twice), `cold` (a fresh matcher), `warm` (a matcher that has seen
the same values) or `no memory` (the memory of values is off, on the values of `warm`). All sides' matches are compared
before anything is measured; unequal ones are an error. A peer that cannot be had is left out, and said to be.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rules import report
from bench.rules.compare import NO_MEMORY, Case, compare, hostile
from bench.rules.events import few_events, few_rules, sigma_events, sigma_rules
from bench.rules.figures import Figure

CASES = ("few", "sigma", "thousand", "growth", "hostile", "topics")
GROWTH = (10, 100, 1_000, 3_000, 10_000)
_PROCESSES = {
    "sigma": ((3_780,), {"warm": 50_000, NO_MEMORY: 25_000}),
    "thousand": ((1_000,), {"warm": 80_000}),
    "growth": (GROWTH, {}),
}  # fmt: skip


def cases_of(name: str) -> list[Case]:
    """Returns the cases of a name."""
    if name == "few":
        return [Case(name, few_rules(), few_events, {"distinct": 500_000})]
    sizes, targets = _PROCESSES[name]
    sets = [sigma_rules(size) for size in sizes]
    return [Case(name, rules, functools.partial(sigma_events, rules), targets) for rules in sets]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rules", description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_480, help="events of each case. Default: %(default)s")
    parser.add_argument("--topic_messages", type=int, default=400_000, help="of `topics`. Default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, added to those of other cases")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables into a page, between its marks")
    given = parser.parse_args(arguments)
    names = given.cases.split(",")
    if unknown := sorted({*names} - {*CASES}):
        parser.error(f"no such case: {unknown[0]}; there are {', '.join(CASES)}")
    figures: list[Figure] = []
    topics: list[dict[str, Any]] = []
    for name in names:
        if name == "hostile":
            figures += hostile(given.repeats)
        elif name == "topics":
            from bench.rules.topics import show

            topics = show(given.topic_messages, given.repeats)
        else:
            for case in cases_of(name):
                figures += compare(case, given.messages, given.repeats)
    if given.json:
        figures, topics = report.kept(given.json, names, figures, topics)
        content = {"figures": [each._asdict() for each in figures], "topics": topics}
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        report.write(given.markdown, figures, topics)
    return 0


if __name__ == "__main__":
    sys.exit(main())
