"""`rmqio rules explain` and `rmqio rules fields`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.output import print_json, print_table
from rmqio.command_line.terminal import COLUMNS, cut, safe
from rmqio.near_names import did_you_mean
from rmqio.rules.command.contradictions import shown
from rmqio.rules.command.given import ruleset_of
from rmqio.rules.command.lint import ENGINES, cost_of, triggers
from rmqio.rules.correlation.rule import CorrelationRule
from rmqio.rules.ir import FIELD_KINDS, And, Atom, Condition, Kind, Not, Rule, atoms
from rmqio.rules.trees import simplified


def run(arguments: argparse.Namespace) -> int:
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
