"""Tables for the events: an index of each field, the rules that atoms trigger, and the check of each rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final, NamedTuple

import msgspec

from rmqio.rules.errors import Limits
from rmqio.rules.ir import FIELD_KINDS, Atom, Kind
from rmqio.rules.match.atoms import (
    condition_text,
    cut,
    everything,
    flat,
    folded,
    is_number,
    leaves_at,
    related,
    text_of,
    whole_text,
)
from rmqio.rules.match.field import Cuts, FieldIndex
from rmqio.rules.match.patterns import MakeJoined
from rmqio.rules.match.plan import LATE_KINDS, Check, Plan, Reasons, check_of, trigger_of

# Look-ups of values: the atoms that a value meets, and the rules that these trigger, remembered by value.
#
# The memory of a field is bounded together with that of all fields, and switches itself off while it seldom pays. To
# store a value costs as much as to compute what it leads to. So a memory that does not pay at once is on trial: it
# stores a few values only, and notes for a sample of the others by their hashes whether they come again.

_ENTRY_BYTES: Final = 120
_LONGEST_KEPT: Final = 512
_WINDOW: Final = 4_096
_FIRST_WINDOW: Final = 2_048
_TRUSTED_WINDOW: Final = 32_768
"""For a memory whose trial went well: it has to fill before it is judged."""
_LEAST_RATE: Final = 0.25
_PAUSE: Final = 65_536
_FEW: Final = 256
"""Values that a memory on trial stores: fields with few values need no more."""
_ONE_OF: Final = 13
"""A value in so many is in the sample, always or never. A prime, because the hashes of integers are these."""
_SAMPLED: Final = 96
"""Values of the sample between judgements."""
_LEAST_SAMPLED: Final = 384
_MOST_SAMPLED: Final = 1_056
_MOST_HASHES: Final = 4_096
_SURE_RATE: Final = 0.5
_HOPELESS_RATE: Final = 0.1


class Found(NamedTuple):
    """Atoms, and the rules that they trigger."""

    atoms: tuple[int, ...]
    rules: tuple[int, ...]


class Budget:
    """The bytes that the memories of all fields may take. When they are used up, all are forgotten."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.caches: list[Cache] = []

    def take(self, size: int) -> None:
        self.used += size
        if self.used > self.limit:
            for cache in self.caches:
                cache.clear()
            self.used = 0


class Cache(dict[Any, "Found | None"]):
    """From texts and integers to what they lead to; computes what is missing."""

    _STATE = ("_again", "_hashes", "_is_tried", "_left", "_sampled", "_window", "is_on", "misses", "seen")
    __slots__ = (*_STATE, "_compute", "budget")

    def __init__(self, compute: Callable[[Any], Found | None], budget: Budget) -> None:
        super().__init__()
        self._compute = compute
        self.budget = budget
        budget.caches.append(self)
        self.is_on = budget.limit > 0
        self.misses = 0
        self.seen = 0
        self._left = 0
        self._window = _FIRST_WINDOW
        self._is_tried = False
        self._sampled = self._again = 0
        self._hashes: set[int] = set()

    def __missing__(self, value: Any) -> Found | None:
        if value is msgspec.UNSET:  # a row without the field
            self[value] = None
            return None
        found = self._compute(value)
        self.misses += 1
        if not self.is_on:
            self.rest(1)
            return found
        if self._is_tried and len(self) >= _FEW:
            if (number := hash(value)) % _ONE_OF == 0:
                self._sample(number)
            return found
        size = len(value) if value.__class__ is str else 8
        if size <= _LONGEST_KEPT:
            self[value] = found
            self.budget.take(size + _ENTRY_BYTES)
        if not self._is_tried and self.misses >= self._window <= self.seen:
            if 1 - self.misses / self.seen < _LEAST_RATE:
                self._try()
            self._window, self.misses, self.seen = _WINDOW, 0, 0
        return found

    def copy_of(self, other: Cache, changed: Callable[[Found], Found | None]) -> None:
        """Takes what another memory of the same field has, and how it fared."""
        there = dict.copy(other)  # other threads may add values meanwhile
        self.update((value, None if found is None else changed(found)) for value, found in there.items())
        for name in self._STATE:
            setattr(self, name, getattr(other, name))

    def _try(self) -> None:
        self.is_on = self._is_tried = True
        self._sampled = self._again = 0  # the hashes stay: values can come again after a while
        self.clear()

    def _sample(self, number: int) -> None:
        """Notes a value by its hash, and judges now and then whether values come again."""
        self._sampled += 1
        if number in self._hashes:
            self._again += 1
        else:
            if len(self._hashes) >= _MOST_HASHES:
                self._hashes.clear()
            self._hashes.add(number)
        if self._sampled % _SAMPLED:
            return
        rate, is_last = self._again / self._sampled, self._sampled >= _MOST_SAMPLED
        if rate >= (_LEAST_RATE if is_last else _SURE_RATE):
            self._hashes.clear()
            self._is_tried, self._window, self.misses, self.seen = False, _TRUSTED_WINDOW, 0, 0
        elif is_last or (rate < _HOPELESS_RATE and self._sampled >= _LEAST_SAMPLED):
            self._pause()

    def _pause(self) -> None:
        self.is_on, self._left = False, _PAUSE
        self.clear()

    def rest(self, count: int) -> None:
        """Notes values that were looked up while the memory is off; after so many, it tries again."""
        self._left -= count
        if self._left <= 0 and self.budget.limit:
            self._try()


class Lookup:
    """The index of a field, with what its atoms trigger."""

    def __init__(self, index: FieldIndex, triggered: Mapping[int, tuple[int, ...]], budget: Budget) -> None:
        self.index = index
        self._triggered = triggered
        self._made: dict[tuple[int, ...], Found] = {}
        self.cache = Cache(self._of_one, budget)

    def carry(self, other: Lookup) -> None:
        """Takes the memory of another look-up of the same index, whose atoms trigger other rules."""
        self.cache.copy_of(other.cache, lambda found: self._found(found.atoms))

    def of(self, value: Any) -> Found | None:
        """Returns what any value leads to, also a list or an object; None: nothing."""
        kind = value.__class__
        if kind is str or kind is int:
            return self.cache[value]
        if isinstance(value, (list, tuple, Mapping)):
            met = dict.fromkeys(self.index.exists)
            for each in self.index.cuts.values(flat(value)):
                met.update(dict.fromkeys(self.atoms_of(each)))
            return self._found(tuple(met))
        return self._of_one(value)

    def atoms_of(self, value: Any) -> tuple[int, ...]:
        """Returns the atoms that a single value meets."""
        if value.__class__ not in (str, int):
            return self.index.of(value)
        found = self.cache[value]
        return () if found is None else found.atoms

    def _of_one(self, value: Any) -> Found | None:
        atoms = self.index.of(value)
        return self._found(atoms) if atoms else None

    def _found(self, atoms: tuple[int, ...]) -> Found | None:
        if not atoms:
            return None
        found = self._made.get(atoms)
        if found is None:
            if len(self._made) >= _WINDOW:
                self._made.clear()
            triggered = self._triggered
            rules = dict.fromkeys(rule for atom in atoms for rule in triggered.get(atom, ()))
            found = self._made[atoms] = Found(atoms, tuple(rules))
        return found


# One event that may match rules: answers for the atoms that no index finds, and the values that met atoms.

_SHOWN: Final = 256

Predicates = Mapping[int, Callable[[Mapping[str, Any]], Any]]


class Evidence:
    """It remembers what it has been asked."""

    def __init__(
        self,
        plan: Plan,
        lookups: Mapping[str | None, Lookup],
        predicates: Predicates,
        event: Mapping[str, Any],
        limits: Limits,
    ) -> None:
        self._plan = plan
        self._lookups = lookups
        self._predicates = predicates
        self._event = event
        self._limits = limits
        self._known: dict[int, bool] = {}
        self._met: dict[str | None, dict[int, Any]] = {}

    def late(self, number: int) -> bool:
        """Whether an atom of several fields matches."""
        answer = self._known.get(number)
        if answer is None:
            atom = self._plan.atoms[number]
            if atom.kind is Kind.SQL:
                answer = bool(self._predicates[number](self._event))
            else:
                answer = self._related_value(atom) is not None
            self._known[number] = answer
        return answer

    def shown(self, number: int) -> tuple[str, str, Any]:
        """The field, the condition, and the first value that met it."""
        atom, first = self._plan.atoms[number], self._plan.shown[number]
        if atom.kind is Kind.SQL:
            return "", condition_text(first), True
        if atom.kind in FIELD_KINDS:
            value = (self._related_value(atom) or (None,))[0]
        else:
            value = self._met_of(atom.field).get(number)
        if value is not None and value.__class__ not in (str, int, float, bool):
            value = text_of(value)
        return atom.field or "", condition_text(first), value[:_SHOWN] if isinstance(value, str) else value

    def _met_of(self, field: str | None) -> dict[int, Any]:
        """The first value that met each atom of a field."""
        met = self._met.get(field)
        if met is None:
            met = self._met[field] = {}
            atoms_of = self._lookups[field].atoms_of
            for each in leaves_at(self._event, field, self._limits.max_values) or ():
                for number in atoms_of(each):
                    met.setdefault(number, each)
        return met

    def _related_value(self, atom: Atom) -> tuple[Any] | None:
        """The first value of a field that is to one of another field's as the atom says."""
        values, others = self._values_at(str(atom.field)), self._values_at(str(atom.value))
        if atom.kind is not Kind.FIELD:
            pairs = islice(product(values, others), self._limits.max_values)
            met = (one for one, other in pairs if related(atom.kind, one, other, ignore_case=atom.ignore_case))
            return next(zip(met, strict=False), None)
        if not others:
            return None
        fold = folded if atom.ignore_case else str
        numbers = {each for each in others if is_number(each)}
        texts = {fold(text) for each in others if (text := text_of(each)) is not None}
        for each in values:
            text = text_of(each)
            if text is not None and (fold(text) in texts or (is_number(each) and each in numbers)):
                return (each,)
        return None

    def _values_at(self, field: str) -> list[Any]:
        found = leaves_at(self._event, field, self._limits.max_values) or ()
        most = self._limits.max_value_bytes
        return [whole_text(cut(each, most)) if isinstance(each, str) else each for each in found]


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
