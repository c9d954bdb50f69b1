"""`rmqio rules check`, `rmqio rules explain` and `rmqio rules fields`."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rmqio.command_line.output import COLUMNS, CommandFailed, cut, note, print_json, print_table, safe
from rmqio.errors import LocalError, counted
from rmqio.hints import did_you_mean
from rmqio.rules.command.lint import ENGINES, Cost, cost_of, shown, triggers, warnings_of
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.formats import Parsed, RuleText
from rmqio.rules.ir import FIELD_KINDS, And, Atom, Condition, CorrelationRule, Kind, Not, Rule, atoms, simplified
from rmqio.rules.ruleset import Files, RuleSet, write_manifest

# The set of rules that a command line names.


def ruleset_of(arguments: argparse.Namespace) -> RuleSet:
    """Returns the set. Raises `LocalError` for files and a topic at once, or neither."""
    if bool(arguments.files) == (arguments.rules_topic is not None):
        raise LocalError("name the files of the rules, as in 'rules/*.yml', or their topic by --rules_topic")
    if arguments.files:
        return RuleSet.from_files(*arguments.files, format=arguments.format, mapping=arguments.mapping)
    from rmqio.client.factory import RemotingClientFactory
    from rmqio.command_line.cluster import attended_options

    factory = RemotingClientFactory(attended_options(arguments))
    return RuleSet.from_topic(
        arguments.rules_topic, client_factory=factory, format=arguments.format, mapping=arguments.mapping
    )


@contextlib.contextmanager
def each_on_its_line() -> Iterator[None]:
    """Prints several problems one below the other, each with the line that shows it; the error then counts them."""
    try:
        yield
    except RuleError as error:
        if len(error.problems) < 2:
            raise
        for each in error.problems:
            print(safe(text_of(each)), file=sys.stderr)
        raise LocalError(f"the rules cannot be used: they have {len(error.problems):,} problems") from error


def text_of(problem: Problem) -> str:
    """Returns a problem with the line that shows it."""
    shown = getattr(problem, "shown", "")
    return f"{problem}\n{shown}" if shown else str(problem)


# `rmqio rules explain` and `rmqio rules fields`.


def run_explain(arguments: argparse.Namespace) -> int:
    """Runs `explain` and returns the exit status."""
    found = ruleset_of(arguments).loaded()
    together: list[Rule | CorrelationRule] = [*found.rules, *found.correlations]
    wanted = [each for each in together if arguments.rule in (None, each.id)]
    if not wanted:
        near = did_you_mean(arguments.rule or "", [each.id for each in together])
        raise CommandFailed(f"there is no rule {arguments.rule!r}{near}" if arguments.rule else "there are no rules")
    for number, each in enumerate(wanted):
        if number:
            print()
        for line in _lines(each):
            print(safe(line))
    return 0


def _lines(rule: Rule | CorrelationRule) -> Iterator[str]:
    yield f"{rule.id}  {rule.title}".rstrip()
    facts = [f"level {rule.level}", *([f"tags {', '.join(rule.tags)}"] if rule.tags else [])]
    if rule.place.file:
        facts.append(f"{rule.place.file}:{rule.place.line}")
    yield f"  {'; '.join(facts)}"
    if isinstance(rule, CorrelationRule):
        by = f" by {', '.join(rule.group_by)}" if rule.group_by else ""
        what = {"value_count": f" of {rule.field}"}.get(rule.kind.value, "")
        compared = f" {rule.operator} {rule.count}" if rule.kind.value.endswith("count") else ""
        yield f"  {rule.kind.value}{what}{compared} within {rule.timespan_ms / 1000:g} s{by}, of"
        yield from (f"    {each}" for each in rule.rules)
        return
    condition = simplified(rule.condition)
    yield from _tree(condition, set(triggers(condition)))
    yield from (f"  {each}" for each in cost_of(rule).remarks)


def _tree(condition: Condition, found_by: set[Atom]) -> Iterator[str]:
    todo: list[tuple[Condition, int]] = [(condition, 1)]
    while todo:
        one, depth = todo.pop()
        indent = "  " * depth
        if isinstance(one, Atom):
            mark = "*" if one in found_by else " "
            room = COLUMNS - 16
            text = indent + cut(f"{mark} {shown(one)}", room - len(indent))
            yield f"{text:<{room}}  {ENGINES[one.kind]}"
        elif isinstance(one, Not):
            yield f"{indent}not"
            todo.append((one.condition, depth + 1))
        else:
            yield f"{indent}{'all of' if isinstance(one, And) else 'any of'}"
            todo += [(each, depth + 1) for each in reversed(one.conditions)]


def run_fields(arguments: argparse.Namespace) -> int:
    """Runs `fields` and returns the exit status."""
    rules = ruleset_of(arguments).load()
    users: Counter[str] = Counter()
    kinds: dict[str, Counter[Kind]] = {}
    for rule in rules:
        mine = set()
        for each in atoms(rule.condition):
            if each.kind is Kind.SQL:
                continue
            names = [each.field, str(each.value)] if each.kind in FIELD_KINDS else [each.field]
            for name in names:
                mine.add(name or "")
                kinds.setdefault(name or "", Counter())[each.kind] += 1
        users.update(mine)
    ordered = sorted(users, key=lambda name: (-users[name], name))
    if arguments.json:
        print_json(
            {
                "fields": [
                    {"field": name or None, "rules": users[name], "kinds": {k.value: n for k, n in kinds[name].items()}}
                    for name in ordered
                ]
            }
        )
    else:
        rows = []
        for name in ordered:
            used = ", ".join(each.value for each, _ in kinds[name].most_common())
            rows.append((safe(name or "(any text)"), str(users[name]), used))
        print_table(("~FIELD", ">RULES", "KINDS"), rows)
    return 0


_SIGMA_FILTER: Final = re.compile(r"^filter[ \t]*:", re.MULTILINE)
"""A filter changes the rules of other files."""


def run_check(arguments: argparse.Namespace) -> int:
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
