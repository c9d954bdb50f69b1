"""The engine: rules compiled to a `Matcher`, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from rmqio.errors import LocalError, SerdeError
from rmqio.internal_errors import internal_error
from rmqio.rules.errors import Limits, Problem, RuleError, without_problems
from rmqio.rules.ir import FIELD_KINDS, Atom, Kind, Rule, read_rules, write_rules
from rmqio.rules.match import regexes
from rmqio.rules.match.atoms import BadAtom, Wild, name_of, parts_of
from rmqio.rules.match.columns import Broken, Columns, event_of, events_of, failure_text
from rmqio.rules.match.field import CutCounts, Cuts, FieldIndex
from rmqio.rules.match.patterns import (
    Database,
    DatabaseStore,
    JoinedTexts,
    NoStore,
    Patterns,
    PlainPatterns,
    TooManyPatterns,
    VectorscanPatterns,
    too_large,
)
from rmqio.rules.match.plan import LATE_KINDS, MEANING, Plan, expected, version_of
from rmqio.rules.match.regexes import relaxed, size_of
from rmqio.rules.match.tables import Evidence, Tables

__all__ = ["Broken", "Hit", "Matcher", "compile_rules"]

Engine = Literal["auto", "vectorscan", "plain"]
_SAMPLE = 512
_OF_A_BATCH = 16


class Hit(NamedTuple):
    """A rule that an event matches."""

    rule: Rule
    atoms: tuple[tuple[str, str, Any], ...]
    """The reasons: field, condition, and the value of the event (a text: at most 256 characters)."""


class Matcher:
    """A compiled rule set. It may be used by several threads. `compile_rules` makes one."""

    def __init__(
        self, rules: Sequence[Rule], limits: Limits, engine: Engine, store: DatabaseStore, previous: Matcher | None
    ) -> None:
        self.limits = limits
        self.version = version_of(rules, limits)
        self._engine = _chosen(engine)
        self._parts: dict[str | None, int] = {}
        self._sql: dict[int, Callable[[Mapping[str, Any]], Any]] = {}
        self._plan = plan = Plan(rules, limits, self._check)
        self.rules = plan.rules
        """In their order."""
        for number, atom in enumerate(plan.atoms[:]):
            if atom.kind is Kind.SQL:
                self._sql[number] = _sql_predicate(str(atom.value))
            elif atom.kind in FIELD_KINDS:
                plan.exists(str(atom.field))
        by_field: dict[str | None, list[tuple[int, Atom]]] = {}
        for number, atom in enumerate(plan.atoms):
            if atom.kind not in LATE_KINDS:
                by_field.setdefault(atom.field, []).append((number, atom))
        self._cuts = Cuts(limits)
        self._databases: dict[str, Database] = {}
        self._store = store if previous is None else _Reused(previous._databases, store)
        alone = self._engine == "vectorscan"
        self._indexes = {
            field: FieldIndex(atoms, limits, self._cuts, self._make_patterns, alone=alone)
            for field, atoms in by_field.items()
        }
        costs = {number: expected(atom, plan.uses[number]) for number, atom in enumerate(plan.atoms)}
        self._tables = Tables(plan, self._indexes, costs, limits, self._cuts, self._make_joined)
        self._columns = Columns.of(self._tables, by_field, self._make_joined)
        self._store = _Reused(self._databases, store)  # what was before is needed no longer
        self._counts: dict[int, int] | None = {}
        self._sampled = 0

    @property
    def is_columnar(self) -> bool:
        """Whether bodies are looked at column by column."""
        return self._columns is not None

    def match(self, event: Mapping[str, Any]) -> list[Hit]:
        """Returns the rules that an event matches, in their order."""
        found, broken = self.find_events([event])
        if broken:
            raise broken[0]
        return found.get(0, [])

    def match_many(self, bodies: Sequence[bytes]) -> list[list[Hit] | Broken]:
        """Returns for each body of JSON the rules that it matches, or why it is not an event."""
        found, broken = self.find(bodies)
        return [Broken(failure_text(broken[at])) if at in broken else found.get(at, []) for at in range(len(bodies))]

    def find(self, bodies: Sequence[bytes]) -> tuple[dict[int, list[Hit]], dict[int, Exception]]:
        """Returns the hits of the bodies that have some, and the errors of those that are not events, by position.

        An event that fails in a way that nobody expects has such an error, too.
        """
        if self._counts is not None:
            self._sample(bodies)
        columns, noted = self._columns, self._cuts.noted
        if columns is not None and len(bodies) > 1:
            try:
                rows, broken = columns.candidates(bodies)
            except Exception:  # noqa: BLE001  # it is of one event, which is found below
                pass
            else:
                found = self._found(rows, broken)
                if self._cuts.noted != noted:
                    self._cuts.count(events_of(bodies)[0], self._indexes)
                return found, broken
        events, broken = events_of(bodies)
        found, failed = self.find_events(events)
        return found, broken | failed

    def find_events(
        self, events: Sequence[Mapping[str, Any] | None]
    ) -> tuple[dict[int, list[Hit]], dict[int, Exception]]:
        """Returns the hits of the events that have some, and the errors of those that fail, by position."""
        broken: dict[int, Exception] = {}
        noted = self._cuts.noted
        found = self._found([(at, event) for at, event in enumerate(events) if event is not None], broken)
        self._tables.note_seen(events)
        if self._cuts.noted != noted:
            self._cuts.count(events, self._indexes)
        return found, broken

    def taken_cuts(self) -> CutCounts:
        """Returns how many long texts and lists were cut since it was last called."""
        return self._cuts.taken()

    def dump(self) -> bytes:
        """Returns bytes from which `load` makes an equal matcher without compiling patterns."""
        databases = {key: each.raw() for key, each in self._databases.items()}
        limits = {name: getattr(self.limits, name) for name in Limits.__slots__}
        return msgspec.msgpack.encode([MEANING, self._engine, limits, write_rules(self.rules), databases])

    @staticmethod
    def load(raw: bytes) -> Matcher:
        """Returns the matcher of `dump`. Raises `LocalError` if the bytes are of another version."""
        try:
            version, engine, limits, rules, databases = msgspec.msgpack.decode(raw)
            if version != MEANING:
                raise ValueError(f"they have version {version}, and this rmqio reads version {MEANING}")
            found = read_rules(rules)
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError) as error:
            raise LocalError(
                f"Matcher.load cannot read these bytes as compiled rules: {error}. Dump the rules again with this rmqio"
            ) from error
        return compile_rules(found, limits=Limits(**limits), engine=engine, store=_Given(databases))

    # ---- compiling ---------------------------------------------------------------------------------------------------

    def _check(self, atom: Atom) -> None:
        self._take_parts(atom)
        if atom.kind is Kind.REGEX:
            regexes.plan_of(
                str(atom.value), atom.flags, self.limits.max_regex_bytes, with_vectorscan=self._engine == "vectorscan"
            )
        elif atom.kind is Kind.SQL:
            try:
                _sql_predicate(str(atom.value))
            except (ValueError, ImportError) as error:
                raise BadAtom(f"SQL {str(atom.value)[:80]!r}: {error}") from error

    def _take_parts(self, atom: Atom) -> None:
        """Refuses a pattern that would take too long to compile with the others of its field."""
        text, most = str(atom.value), self.limits.max_pattern_parts
        if atom.kind is Kind.REGEX:
            parts = size_of(relaxed(text))
        elif atom.kind is Kind.WILDCARD:
            parts = sum(isinstance(each, Wild) for each in parts_of(text))
        else:
            return
        together = self._parts[atom.field] = self._parts.get(atom.field, 0) + parts
        if together > most:
            raise BadAtom(
                f"the patterns of {name_of(atom.field)} have {together:,} parts with {parts:,} of this one, "
                f"{text[:80]!r}; max_pattern_parts is {most:,}"
            )

    def _make_patterns(self, atoms: Sequence[tuple[int, Atom]]) -> Patterns:
        if self._engine == "plain":
            return PlainPatterns(atoms)
        try:
            made = VectorscanPatterns(atoms, self._store, self.limits)
        except TooManyPatterns as error:
            raise RuleError((too_large(self.rules, atoms, str(error)),)) from error
        self._databases |= {each.key: each for each in made.databases}
        return made

    def _make_joined(self, atoms: Iterable[Atom]) -> JoinedTexts | None:
        made = JoinedTexts.of(atoms, self._store, self.limits) if self._engine == "vectorscan" else None
        if made is not None and made.database is not None:
            self._databases[made.database.key] = made.database
        return made

    def _sample(self, bodies: Sequence[bytes]) -> None:
        """Counts how often atoms match, in the first events; then chooses triggers by these counts, once."""
        counts = self._counts
        if counts is None:
            return
        for body in bodies[:_OF_A_BATCH]:
            try:
                event = event_of(body)
            except Exception:  # noqa: BLE001  # it is reported where it is matched
                continue
            self._sampled += 1
            for number in self._tables.look(event)[0]:
                counts[number] = counts.get(number, 0) + 1
        if self._sampled >= _SAMPLE:
            self._counts = None
            rest = {number: expected(atom, self._plan.uses[number]) for number, atom in enumerate(self._plan.atoms)}
            most = max(rest.values(), default=1.0)
            costs = {number: counts.get(number, 0) + cost / most / 2 for number, cost in rest.items()}
            self._tables = Tables(
                self._plan, self._indexes, costs, self.limits, self._cuts, self._make_joined, self._tables
            )
            if self._columns is not None:
                self._columns = self._columns.with_tables(self._tables)

    # ---- matching ----------------------------------------------------------------------------------------------------

    def _found(
        self, events: Iterable[tuple[int, Mapping[str, Any]]], broken: dict[int, Exception]
    ) -> dict[int, list[Hit]]:
        """Returns the hits of the events that have some, by position; adds the errors of those that fail."""
        tables, found = self._tables, {}
        look = tables.look
        for at, event in events:
            try:
                hits, candidates = look(event)
                if candidates and (matched := self._checked(tables, event, hits, candidates)):
                    found[at] = matched
            except RecursionError as error:  # nested too deeply
                broken[at] = error
            except Exception as error:  # noqa: BLE001
                broken[at] = SerdeError(internal_error(error, "an event of rules"))
        return found

    def _checked(self, tables: Tables, event: Mapping[str, Any], hits: set[int], candidates: Any) -> list[Hit]:
        found = []
        evidence = Evidence(self._plan, tables.lookups, self._sql, event, self.limits)
        late = evidence.late
        for at in sorted(candidates):
            if tables.check(at)(hits, late):
                numbers = tables.reasons(at).of(hits, late, self.limits.max_hit_atoms) or ()
                found.append(Hit(self.rules[at], tuple(map(evidence.shown, numbers))))
        return found


def compile_rules(
    rules: Sequence[Rule],
    *,
    limits: Limits | None = None,
    engine: Engine = "auto",
    store: DatabaseStore | None = None,
    previous: Matcher | None = None,
) -> Matcher:
    """Compiles rules.

    Args:
      limits: bounds; None: the defaults.
      engine: what finds patterns. "auto": Vectorscan if it is installed, else one pattern after the other.
      store: keeps compiled patterns, for instance for other processes.
      previous: a matcher whose compiled patterns are taken for fields that have not changed.

    Raises: `RuleError` with all problems.
    """
    return Matcher(rules, limits or Limits(), engine, store or NoStore(), previous)


class _Given:
    """Patterns that are compiled already."""

    def __init__(self, databases: Mapping[str, bytes]) -> None:
        self._databases = databases

    def get(self, key: str, build: Callable[[], bytes]) -> bytes:
        found = self._databases.get(key)
        return build() if found is None else found


class _Reused:
    """Patterns that a matcher has, else those of a store."""

    def __init__(self, databases: Mapping[str, Database], store: DatabaseStore) -> None:
        self._by_key = databases
        self._store = store

    def get(self, key: str, build: Callable[[], bytes]) -> bytes:
        found = self._by_key.get(key)
        return self._store.get(key, build) if found is None else found.raw()


def _chosen(engine: Engine) -> Engine:
    if engine not in ("auto", "vectorscan", "plain"):
        raise LocalError(f"engine is {engine!r}; it must be auto, vectorscan or plain")
    if engine == "vectorscan" and not regexes.has_vectorscan():
        raise LocalError("the engine vectorscan needs the wheel of hyperscan; install rmqio[rules]")
    if engine == "auto":
        return "vectorscan" if regexes.has_vectorscan() else "plain"
    return engine


def _sql_predicate(text: str) -> Callable[[Mapping[str, Any]], Any]:
    from rmqio.rules.where import sql_predicate  # type: ignore[import-not-found,unused-ignore]

    made: Callable[[Mapping[str, Any]], Any] = sql_predicate(text)
    return made


# Rules of a set of which some cannot be used: the others, and what was left out.


def compile_usable(
    source: Any, *, limits: Limits | None = None, store: DatabaseStore | None = None, previous: Matcher | None = None
) -> tuple[Matcher, tuple[Problem, ...]]:
    """Returns the rules of a source that can be used, and what is wrong with the others.

    Args:
      source: a `RuleSet`; of another source, which has no more than `load`, rules that do not compile are left out.
      limits, store, previous: as for `compile_rules`.

    Raises: `RuleError` if there are rules, and none can be used, or if the source cannot be read.
    """
    rules: Iterable[Rule]
    if hasattr(source, "usable"):
        found = source.usable()
        rules, problems = found.rules, [*found.problems]
    else:
        rules, problems = source.load(), []
    while True:
        rules = tuple(rules)
        if problems and not rules:
            raise RuleError(tuple(problems))
        try:
            return compile_rules(rules, limits=limits, store=store, previous=previous), tuple(problems)
        except RuleError as error:
            problems += error.problems
            left = [*without_problems(rules, error.problems)]
            if len(left) == len(rules):
                raise
            rules = left
