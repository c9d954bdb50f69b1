"""Tables for the events: an index of each field, the rules that atoms trigger, and the check of each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqio.rules.ir import FIELD_KINDS, Atom
from rmqio.rules.limits import Limits
from rmqio.rules.match.cuts import Cuts
from rmqio.rules.match.field import FieldIndex
from rmqio.rules.match.joined import MakeJoined
from rmqio.rules.match.lookup import Budget, Lookup
from rmqio.rules.plan.checks import Check, check_of
from rmqio.rules.plan.plan import LATE_KINDS, Plan
from rmqio.rules.plan.reasons import Reasons
from rmqio.rules.plan.triggers import trigger_of
from rmqio.rules.plan.values import everything

_MISSING: Final = object()
_NOTED_EVERY: Final = 64


class Tables:
    """Made once for a rule set, and once more when it is known how often atoms match."""

    def __init__(
        self,
        plan: Plan,
        indexes: Mapping[str | None, FieldIndex],
        costs: Mapping[int, float],
        limits: Limits,
        cuts: Cuts,
        joined: MakeJoined,
        previous: Tables | None = None,
    ) -> None:
        """`previous`: tables of the same plan, whose checks and remembered values hold here, too."""
        self.nodes = plan.nodes
        self._cuts = cuts
        atoms = plan.atoms
        self._late = frozenset(number for number, atom in enumerate(atoms) if atom.kind in LATE_KINDS)
        self._checks: list[Check | None] = [None] * len(plan.nodes) if previous is None else previous._checks
        self._reasons: list[Reasons | None] = [None] * len(plan.nodes) if previous is None else previous._reasons
        triggered: dict[int, list[int]] = {}
        always: list[int] = []
        for at, node in enumerate(plan.nodes):
            trigger = trigger_of(
                node,
                lambda number: None if number in self._late else costs[number],
                lambda number: plan.exists(str(atoms[number].field)) if atoms[number].kind in FIELD_KINDS else number,
            )
            if trigger is None:
                always.append(at)
            else:
                for number in trigger.atoms:
                    triggered.setdefault(number, []).append(at)
        self.always = frozenset(always)
        by_atom = {number: tuple(rules) for number, rules in triggered.items()}
        self.budget = Budget(limits.cache_bytes)
        self.lookups = {field: Lookup(index, by_atom, self.budget) for field, index in indexes.items()}
        if previous is not None:
            self.budget.used = previous.budget.used
            for field, lookup in self.lookups.items():
                lookup.carry(previous.lookups[field])
        self._triggers = [atoms[number] for number in by_atom]
        self.triggering = {atom.field for atom in self._triggers}
        self._simple = {name: each for name, each in self.lookups.items() if name is not None and "." not in name}
        self._dotted = {name: each for name, each in self.lookups.items() if name is not None and "." in name}
        self._paths: dict[str, list[str]] = {}
        """Paths by each of their beginnings: one of them is a name of an event that has the path."""
        for name in self._dotted:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                self._paths.setdefault(".".join(parts[:count]), []).append(name)
        self._anywhere = self.lookups.get(None)
        anywhere = [atom for atom in atoms if atom.field is None and atom.kind not in LATE_KINDS]
        self._anywhere_joined = joined(anywhere) if anywhere else None
        self._not_noted = 0

    def triggers_of(self, field: str) -> list[Atom]:
        """The atoms of a field that can trigger a rule."""
        return [atom for atom in self._triggers if atom.field == field]

    def is_late(self, number: int) -> bool:
        """Whether an atom is asked for when a rule comes to it."""
        return number in self._late

    def check(self, at: int) -> Check:
        """The check of a rule, which is made when it is first needed: most rules never are."""
        check = self._checks[at]
        if check is None:
            check = self._checks[at] = check_of(self.nodes[at], self.is_late)
        return check

    def reasons(self, at: int) -> Reasons:
        """What tells why a rule matches, as `check`."""
        found = self._reasons[at]
        if found is None:
            found = self._reasons[at] = Reasons(self.nodes[at], self.is_late)
        return found

    def look(self, event: Mapping[str, Any]) -> tuple[set[int], Any]:
        """Returns the atoms that match, and the rules to check."""
        hits: set[int] = set()
        rules: set[int] = set()
        simple = self._simple
        if len(simple) <= len(event):
            for name, lookup in simple.items():
                value = event.get(name, _MISSING)
                if value is not _MISSING:
                    kind = value.__class__
                    found = lookup.cache[value] if kind is str or kind is int else lookup.of(value)
                    if found is not None:
                        hits.update(found[0])
                        rules.update(found[1])
        else:
            for name, value in event.items():
                there = simple.get(name)
                if there is not None:
                    kind = value.__class__
                    found = there.cache[value] if kind is str or kind is int else there.of(value)
                    if found is not None:
                        hits.update(found[0])
                        rules.update(found[1])
        if self._paths and not self._paths.keys().isdisjoint(event):
            for name in {path for each in event if each in self._paths for path in self._paths[each]}:
                values = self._cuts.values_at(event, name)
                if values is not None:
                    found = self._dotted[name].of(values[0] if len(values) == 1 else values)
                    if found is not None:
                        hits.update(found[0])
                        rules.update(found[1])
        if self._anywhere is not None:
            anywhere, cache = self._anywhere, self._anywhere.cache
            for value in self._may_meet(self._cuts.values(everything(event))):
                kind = value.__class__
                found = cache[value] if kind is str or kind is int else anywhere.of(value)
                if found is not None:
                    hits.update(found[0])
                    rules.update(found[1])
        if self.always:
            rules.update(self.always)
        return hits, rules

    def _may_meet(self, values: list[Any]) -> list[Any]:
        """The values of an event that can meet a condition without a field, if one look can tell; else all."""
        if self._anywhere_joined is None:
            return values
        texts = [value for value in values if value.__class__ is str]
        positions = self._anywhere_joined.candidates(texts)
        if positions is None:
            return values
        others = [value for value in values if value.__class__ is not str] if len(texts) < len(values) else []
        return [*others, *(texts[at] for at in positions)]

    def note_seen(self, events: Sequence[Mapping[str, Any] | None]) -> None:
        """Notes how often fields were looked up, by an event of 64 or more: memories must know whether they pay."""
        self._not_noted += len(events)
        if self._not_noted < _NOTED_EVERY:
            return
        count, self._not_noted = self._not_noted, 0
        event = next((each for each in events if each is not None), None)
        if event is not None:
            for name, lookup in self._simple.items():
                if name in event:
                    lookup.cache.seen += count
