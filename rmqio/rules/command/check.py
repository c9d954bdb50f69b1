"""`rmqio rules check`."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

from rmqio.command_line.output import note, print_json, print_table
from rmqio.command_line.terminal import safe
from rmqio.errors import LocalError, counted
from rmqio.rules.command.given import ruleset_of, text_of
from rmqio.rules.command.lint import Cost, cost_of, warnings_of
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.formats import Parsed, RuleText
from rmqio.rules.ir import Rule
from rmqio.rules.ruleset import RuleSet
from rmqio.rules.sources import Files, write_manifest

_SIGMA_FILTER: Final = re.compile(r"^filter[ \t]*:", re.MULTILINE)
"""A filter changes the rules of other files."""


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns the exit status."""
    rules = ruleset_of(arguments)
    if arguments.manifest and not isinstance(rules.source, Files):
        raise LocalError("--manifest is for files of rules, not for a topic")
    found = rules.parsed()
    problems = [*found.problems, *_refused_by_engine(found.rules)]
    warnings = [*_without_rules(rules, found), *warnings_of(found.rules)]
    costs = {each.id: cost_of(each) for each in found.rules}
    if arguments.json:
        print_json(_document(found.rules, found.correlations, problems, warnings, costs))
    else:
        for each in problems:
            print(safe(text_of(each)))
        for each in warnings:
            print(safe(f"warning: {text_of(each)}"))
        if arguments.long:
            _print_costs(found.rules, costs)
        counts = [counted(len(found.rules), "rule")]
        if found.correlations:
            counts.append(counted(len(found.correlations), "correlation"))
        print(f"{', '.join(counts)}; {counted(len(problems), 'problem')}, {counted(len(warnings), 'warning')}")
    if arguments.manifest and not problems:
        assert isinstance(rules.source, Files)
        # Also those without rules: filters of Sigma change the rules of other files.
        write_manifest(arguments.manifest, [each.name for each in rules.source.texts()])
        note(f"wrote {arguments.manifest}")
    return 1 if problems else 0


def _without_rules(rules: RuleSet, found: Parsed) -> Iterator[Problem]:
    """Yields a warning for each text that gives nothing: a file that was cut, or whose rules are all comments."""
    used = {each.place.file for each in found.rules} | {each.place.file for each in found.correlations}
    used.update(each.file for each in found.problems)
    texts: Sequence[RuleText] = ()
    with contextlib.suppress(RuleError):  # what cannot be read is a problem already
        texts = () if rules.source is None else rules.source.texts()
    for text in texts:
        if text.name not in used and not _SIGMA_FILTER.search(text.text):
            yield Problem(text.name, 0, "", "it has no rules")


def _refused_by_engine(rules: Sequence[Rule]) -> Sequence[Problem]:
    """Problems that only compiling finds: regular expressions that are none, and limits."""
    from rmqio.rules.engine import compile_rules

    try:
        compile_rules(rules)
    except RuleError as error:
        return error.problems
    return ()


def _print_costs(rules: Sequence[Rule], costs: dict[str, Cost]) -> None:
    rows = []
    for each in rules:
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in costs[each.id].atoms.most_common())
        rows.append((safe(each.id), str(costs[each.id].atoms.total()), kinds))
    if rows:
        print_table(("~RULE", ">ATOMS", "KINDS"), rows)
    for each in rules:
        for remark in costs[each.id].remarks:
            print(safe(f"{each.id}: {remark}"))


def _document(
    rules: Sequence[Rule],
    correlations: Sequence[CorrelationRule],
    problems: Sequence[Problem],
    warnings: Sequence[Problem],
    costs: dict[str, Cost],
) -> dict[str, object]:
    return {
        "rules": [
            {
                "id": each.id, "title": each.title, "level": each.level, "file": each.place.file,
                "line": each.place.line, "atoms": {kind.value: n for kind, n in costs[each.id].atoms.items()},
                "remarks": list(costs[each.id].remarks),
            }
            for each in rules
        ],
        "correlations": [{"id": each.id, "kind": each.kind.value} for each in correlations],
        "problems": [_of_problem(each) for each in problems],
        "warnings": [_of_problem(each) for each in warnings],
    }  # fmt: skip


def _of_problem(problem: Problem) -> dict[str, object]:
    return {"file": problem.file, "line": problem.line, "rule": problem.rule_id, "reason": problem.reason}
