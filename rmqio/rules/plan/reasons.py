"""The atoms that make a rule match. A list can have a hundred thousand values: what is met is looked for in it."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from rmqio.rules.plan.nodes import Join, Node


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
