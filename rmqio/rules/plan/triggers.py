"""Triggers: atoms of which one must match for a rule to match. Other events need not be checked for the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rmqio.rules.ir import Atom, Kind
from rmqio.rules.plan.nodes import Node, folded

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
