"""From rules to a plan: reduced conditions over numbered atoms, the atoms that trigger a rule, and its check."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final, NamedTuple, TypeVar

from rmqio.rules.errors import Limits, Problem, RuleError
from rmqio.rules.ir import FIELD_KINDS, And, Atom, Condition, Kind, Not, Rule
from rmqio.rules.match.atoms import BadAtom, canonical

# Conditions over numbered atoms: constants folded, negation at the atoms only, equal kinds joined.
#
# A node is True, False, the number of an atom, its complement (`~number`) for an atom that must not match, or `Join`.
# Nothing here recurses: a condition may be as deep as it likes.

T = TypeVar("T")


class Join(NamedTuple):
    """All of the nodes, or one of them or more."""

    is_and: bool
    nodes: tuple[Node, ...]


Node = bool | int | Join


def reduced(condition: Condition, number_of: Callable[[Atom], bool | int]) -> Node:
    """Returns the condition as a node.

    `number_of`: of an atom; True or False for one that always or never matches.
    """
    rest: list[tuple[Condition, bool, bool]] = [(condition, False, False)]
    done: list[Node] = []
    while rest:
        one, is_negated, is_open = rest.pop()
        if isinstance(one, Atom):
            number = number_of(one)
            if isinstance(number, bool):
                done.append(number != is_negated)
            else:
                done.append(~number if is_negated else number)
        elif isinstance(one, Not):
            rest.append((one.condition, not is_negated, False))
        elif not is_open:
            rest.append((one, is_negated, True))
            rest += [(each, is_negated, False) for each in reversed(one.conditions)]
        else:
            count = len(one.conditions)
            nodes = done[len(done) - count :]
            del done[len(done) - count :]
            done.append(joined(isinstance(one, And) != is_negated, nodes))
    return done[0]


def joined(is_and: bool, nodes: Iterable[Node]) -> Node:
    """Returns the conjunction or disjunction of nodes."""
    leaves: dict[int, None] = {}
    inner: list[Node] = []  # not compared with each other: that would walk them again at each level
    for node in nodes:
        if isinstance(node, bool):
            if node != is_and:
                return node
        elif isinstance(node, int):
            leaves[node] = None
        elif node.is_and == is_and:
            for each in node.nodes:
                if isinstance(each, int):
                    leaves[each] = None
                else:
                    inner.append(each)
        else:
            inner.append(node)
    if any(~leaf in leaves for leaf in leaves):
        return not is_and
    found = (*leaves, *inner)
    if not found:
        return is_and
    return found[0] if len(found) == 1 else Join(is_and, found)


def folded(node: Node, of_leaf: Callable[[Node], T], of_join: Callable[[bool, Sequence[T]], T]) -> T:
    """Computes a value from the leaves up."""
    rest: list[tuple[Node, bool]] = [(node, False)]
    done: list[T] = []
    while rest:
        one, is_open = rest.pop()
        if not isinstance(one, Join):
            done.append(of_leaf(one))
        elif not is_open:
            rest.append((one, True))
            rest += [(each, False) for each in reversed(one.nodes)]
        else:
            count = len(one.nodes)
            values = done[len(done) - count :]
            del done[len(done) - count :]
            done.append(of_join(one.is_and, values))
    return done[0]


def depth(node: Node) -> int:
    """How deep joins stand in joins."""
    return folded(node, lambda _: 0, lambda _, depths: 1 + max(depths))


# Triggers: atoms of which one must match for a rule to match. Other events need not be checked for the rule.

_COMMON: Final = {
    Kind.EXISTS: 200.0,
    Kind.IS_NULL: 20.0,
    Kind.LESS: 50.0,
    Kind.AT_MOST: 50.0,
    Kind.GREATER: 50.0,
    Kind.AT_LEAST: 50.0,
    Kind.CIDR: 10.0,
    Kind.REGEX: 5.0,
    Kind.WILDCARD: 3.0,
}


class Trigger(NamedTuple):
    """Atoms of which one must match, and how often that is to be expected, by comparison."""

    cost: float
    atoms: tuple[int, ...]


def expected(atom: Atom, uses: int) -> float:
    """How often an atom is expected to match: seldom if it is long, often if many rules use it, as with log sources."""
    length = len(atom.value) if isinstance(atom.value, str) else 4
    common = _COMMON.get(atom.kind, 1.0 + 30.0 / (1 + length) ** 2)
    return common * (1.0 + uses / 8)


def trigger_of(node: Node, cost_of: Callable[[int], float | None], instead_of: Callable[[int], int]) -> Trigger | None:
    """Returns the cheapest trigger of a rule; None: it has none, and each event must be checked.

    Args:
      cost_of: of an atom; None: it cannot trigger.
      instead_of: the atom to watch in place of an atom, which must match if that one does.
    """

    def of_leaf(leaf: Node) -> Trigger | None:
        if isinstance(leaf, bool):
            return None if leaf else Trigger(0.0, ())
        assert isinstance(leaf, int)
        if leaf < 0:
            return None
        watched = instead_of(leaf)
        cost = cost_of(watched)
        return None if cost is None else Trigger(cost, (watched,))

    def of_join(is_and: bool, triggers: Sequence[Trigger | None]) -> Trigger | None:
        there = [each for each in triggers if each is not None]
        if is_and:
            return min(there, key=_cost, default=None)
        if len(there) < len(triggers):
            return None
        atoms: dict[int, None] = {}
        for each in there:
            atoms.update(dict.fromkeys(each.atoms))
        return Trigger(sum(each.cost for each in there), tuple(atoms))

    return folded(node, of_leaf, of_join)


def _cost(trigger: Trigger) -> float:
    return trigger.cost


# The atoms that make a rule match. A list can have a hundred thousand values: what is met is looked for in it.


class _Part(NamedTuple):
    """A join, after those in it."""

    is_and: bool
    places: dict[int, int]
    """The place of each atom that is to be in the set of those that match."""
    absent: frozenset[int]
    """Atoms that are not to be in it."""
    late: tuple[tuple[int, int], ...]
    """Nodes that are to be asked for, with their places."""
    inner: int


class Reasons:
    """Made once for a rule, when it is first needed."""

    def __init__(self, node: Node, is_late: Callable[[int], bool]) -> None:
        """`is_late`: whether an atom is not in the set, and to be asked for."""
        self._parts: list[_Part] = []
        root = node if isinstance(node, Join) else Join(node is not False, () if isinstance(node, bool) else (node,))
        rest: list[tuple[Join, bool]] = [(root, False)]
        while rest:
            join, is_open = rest.pop()
            inner = [each for each in join.nodes if isinstance(each, Join)]
            if inner and not is_open:
                rest.append((join, True))
                rest += [(each, False) for each in reversed(inner)]
                continue
            places: dict[int, int] = {}
            absent: list[int] = []
            late: list[tuple[int, int]] = []
            for place, leaf in enumerate(join.nodes):
                if isinstance(leaf, int):
                    number = leaf if leaf >= 0 else ~leaf
                    if is_late(number):
                        late.append((leaf, place))
                    elif leaf >= 0:
                        places[leaf] = place
                    else:
                        absent.append(number)
            self._parts.append(_Part(join.is_and, places, frozenset(absent), tuple(late), len(inner)))

    def of(self, hits: Set[int], late: Callable[[int], bool], most: int) -> list[int] | None:
        """Returns the atoms, at most so many: of a disjunction those that match. None: the rule does not match."""
        done: list[list[int] | None] = []
        for is_and, places, absent, asked, count in self._parts:
            inner = done[len(done) - count :]
            del done[len(done) - count :]
            few, many = (hits, places) if len(hits) < len(places) else (places, hits)
            met = [(places[number], number) for number in few if number in many]
            answers = [(place, leaf, late(leaf) if leaf >= 0 else not late(~leaf)) for leaf, place in asked]
            if is_and:
                matches = (
                    len(met) == len(places)
                    and absent.isdisjoint(hits)
                    and all(answer for _, _, answer in answers)
                    and None not in inner
                )
            else:
                matches = (
                    bool(met)
                    or not absent <= hits
                    or any(answer for _, _, answer in answers)
                    or any(each is not None for each in inner)
                )
            if not matches:
                done.append(None)
                continue
            met += [(place, leaf) for place, leaf, answer in answers if answer and leaf >= 0]
            kept = dict.fromkeys(number for _, number in sorted(met)[:most])
            for each in inner:
                if len(kept) >= most:
                    break
                kept.update(dict.fromkeys(each or ()))
            done.append(list(kept)[:most])
        return done[0]


# The check of a rule: generated Python over the set of atoms that match.

Check = Callable[[Set[int], Callable[[int], bool]], bool]
"""Called with the atoms that match, and with a function that tells for the others, such as those of two fields."""
_DEEPEST: Final = 20
"""Python's parser has a bound on brackets in brackets."""


def check_of(node: Node, is_late: Callable[[int], bool]) -> Check:
    """Returns the check.

    `is_late`: whether an atom is not in the set, and to be asked for.
    """
    if depth(node) > _DEEPEST:
        reasons = Reasons(node, is_late)
        return lambda hits, late: reasons.of(hits, late, 1) is not None
    constants: dict[str, Any] = {}
    text = _text(node, is_late, constants)
    made: Check = eval(f"lambda h, t: {text}", {"__builtins__": {}, **constants})  # of numbers and sets of numbers only
    return made


def _text(node: Node, is_late: Callable[[int], bool], constants: dict[str, Any]) -> str:
    if isinstance(node, bool):
        return str(node)
    if isinstance(node, int):
        number = node if node >= 0 else ~node
        text = f"t({number})" if is_late(number) else f"{number} in h"
        return f"(not {text})" if node < 0 else f"({text})"
    return _join(node, is_late, constants)


def _join(node: Join, is_late: Callable[[int], bool], constants: dict[str, Any]) -> str:
    """Atoms first, as sets; then the joins; what must be asked for last."""
    plain = frozenset(each for each in node.nodes if isinstance(each, int) and each >= 0 and not is_late(each))
    not_these = frozenset(~each for each in node.nodes if isinstance(each, int) and each < 0 and not is_late(~each))
    late = [each for each in node.nodes if isinstance(each, int) and is_late(each if each >= 0 else ~each)]
    parts: list[str] = []
    for members, all_of, none_of in ((plain, node.is_and, False), (not_these, not node.is_and, True)):
        if len(members) > 2:
            name = f"s{len(constants)}"
            constants[name] = members
            test = f"{name} <= h" if all_of else f"not {name}.isdisjoint(h)"
            parts.append(f"not ({test})" if none_of else f"({test})")
        else:
            parts += [_text(~each if none_of else each, is_late, constants) for each in sorted(members)]
    parts += [_text(each, is_late, constants) for each in node.nodes if isinstance(each, Join)]
    parts += [_text(each, is_late, constants) for each in late]
    return f"({(' and ' if node.is_and else ' or ').join(parts)})"


MEANING: Final = 2
"""Another number when the same rules find something else: it is in the version of rules, and in compiled ones."""
LATE_KINDS: Final = FIELD_KINDS | {Kind.SQL}
"""Atoms that no index of a field finds: they are asked for when a rule comes to them."""


class Plan:
    """Rules with numbers for atoms.

    Attributes:
      rules: in their order.
      nodes: the condition of each.
      atoms: by number.
      shown: each atom as a rule first wrote it.
      uses: how many rules use each atom.
    """

    def __init__(self, rules: Sequence[Rule], limits: Limits, check: Callable[[Atom], None]) -> None:
        """`check` raises `BadAtom` for an atom that no engine can run. Raises `RuleError` with all problems."""
        self.rules = tuple(rules)
        self.nodes: list[Node] = []
        self.atoms: list[Atom] = []
        self.shown: list[Atom] = []
        self.uses: list[int] = []
        self._limits = limits
        self._check = check
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._given: dict[tuple[Any, ...], int] = {}
        problems: list[Problem] = []
        seen: dict[str, Rule] = {}
        for at, rule in enumerate(self.rules):
            if at >= limits.max_rules:
                problems.append(_problem(rule, f"this is one rule more than max_rules, {limits.max_rules:,}"))
                break
            if rule.id in seen:
                first = seen[rule.id].place
                where = f" in {first.file}:{first.line}" if first.file else ""
                problems.append(_problem(rule, f"another rule has this id, too{where}"))
                continue
            seen[rule.id] = rule
            used: set[int] = set()
            try:
                self.nodes.append(reduced(rule.condition, lambda atom, used=used: self._number(atom, used)))  # type: ignore[misc]
            except BadAtom as error:
                problems.append(_problem(rule, str(error)))
                if len(self.atoms) > limits.max_atoms:
                    break
                continue
            for number in used:
                self.uses[number] += 1
        if problems:
            raise RuleError(tuple(problems))

    def exists(self, field: str) -> int:
        """The number of the atom that a field is there, which is added if no rule has it."""
        return self._numbered(Atom(field, Kind.EXISTS))

    def _number(self, atom: Atom, used: set[int]) -> int:
        given = _key(atom)
        number = self._given.get(given)
        if number is None:
            found = canonical(atom, self._limits)
            if _key(found) not in self._numbers:
                self._check(found)
            number = self._given[given] = self._numbered(found, atom)
            if len(self.atoms) > self._limits.max_atoms:
                raise BadAtom(f"more than {self._limits.max_atoms:,} conditions with this rule (max_atoms)")
        used.add(number)
        return number

    def _numbered(self, atom: Atom, shown: Atom | None = None) -> int:
        key = _key(atom)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.atoms)
            self.atoms.append(atom)
            self.shown.append(shown or atom)
            self.uses.append(0)
        return number


def version_of(rules: Sequence[Rule], limits: Limits) -> str:
    """The hash of all that decides what a rule set does: 16 hexadecimal digits. Not where the rules stand."""
    digest = hashlib.sha256(f"{MEANING} {limits!r}".encode())
    for rule in rules:
        digest.update(
            repr((rule.id, rule.title, rule.level, rule.tags, rule.source)).encode("utf-8", "backslashreplace")
        )
        rest = [rule.condition]
        while rest:  # in order, with counts: one text for each tree
            one = rest.pop()
            if isinstance(one, Atom):
                digest.update(repr(_key(one)).encode("utf-8", "backslashreplace"))
            elif isinstance(one, Not):
                digest.update(b"not ")
                rest.append(one.condition)
            else:
                digest.update(b"%s %d " % (b"and" if isinstance(one, And) else b"or", len(one.conditions)))
                rest += reversed(one.conditions)
    return digest.hexdigest()[:16]


def _key(atom: Atom) -> tuple[Any, ...]:
    """The atom, told apart from one whose value is equal and of another type: 1, 1.0 and true."""
    return atom.field, atom.kind, type(atom.value), atom.value, atom.ignore_case, atom.flags


def _problem(rule: Rule, reason: str) -> Problem:
    return Problem(rule.place.file, rule.place.line, rule.id, reason)
